"""Parked tenants: all leaves, nobody counts it, and a request ends it once all has left."""

from __future__ import annotations

from leased import policy
from leased.core.actions import (
    Action,
    Evict,
    Forfeit,
    Grant,
    Leave,
    Overrun,
    PassedOver,
    Preload,
    Revoke,
)
from leased.core.arbiter import Arbiter
from leased.core.events import (
    Closed,
    Frozen,
    MemoryChanged,
    Opened,
    Parked,
    Released,
    Requested,
    Restored,
    Thawed,
    Tick,
    Unparked,
)
from leased.core.rules import MOVE_PATIENCE_NS
from tests.core.line import of

S = 1_000_000_000


def says(a: Arbiter, tenant: int, there: int, now: int = 0) -> list[Action]:
    """It has 60 bytes, and so many of them are on the device."""
    return a.handle(MemoryChanged(tenant, "d0", 60, 0, there), now)


def working(tenants: int = 1, lock: str = "auto") -> Arbiter:
    """On a device of 100 bytes; each has 60, and the first works."""
    a = Arbiter({"d0": 100}, policy.make)
    for tenant in range(1, tenants + 1):
        a.handle(Opened(tenant, ("d0",), lock, S, swaps=True), 0)
        says(a, tenant, 0)
    assert of(Grant, a.handle(Requested(1), 0)) == [1]
    says(a, 1, 60)
    a.handle(Restored(1, 1), 0)
    return a


def with_parked() -> Arbiter:
    """A job that was parked at 1 s, and all of whose memory has left."""
    a = working()
    a.handle(Parked(1, "user 7"), S)
    a.handle(Released(1, 1), S)
    says(a, 1, 0, S)
    return a


def test_a_holder_is_revoked_and_then_all_leaves() -> None:
    a = working()
    actions = a.handle(Parked(1, "user 7"), S)
    assert (of(Revoke, actions), of(Leave, actions)) == ([1], [])
    assert of(Leave, a.handle(Released(1, 1), 2 * S)) == [1]
    residency = a.devices["d0"].residency
    assert residency.evictable(1) == 60
    says(a, 1, 0, 3 * S)
    assert (residency.evictable(1), residency.total) == (0, 0)
    parked = a.tenants[1].parked
    assert parked
    assert (parked.by, parked.since) == ("user 7", S)


def test_a_request_ends_the_parking_once_all_has_left() -> None:
    a = working()
    a.handle(Parked(1, "user 7"), S)
    a.handle(Released(1, 1), S)
    assert of(Grant, a.handle(Requested(1), S)) == []
    assert of(Grant, says(a, 1, 20, 2 * S)) == []
    assert of(Grant, says(a, 1, 0, 3 * S)) == [1]
    assert a.tenants[1].parked is None
    assert a.devices["d0"].residency.total == 60


def test_memory_that_does_not_leave_delays_no_tenant() -> None:
    a = working()
    a.handle(Parked(1, "user 7"), S)
    a.handle(Released(1, 1), S)
    a.handle(Requested(1), S)
    assert of(Grant, a.handle(Tick(), S + MOVE_PATIENCE_NS)) == [1]


def test_others_run_as_if_it_were_not_there() -> None:
    """60 and 60 do not fit 100; while the first is parked the second has it for itself."""
    a = working(2)
    assert a.handle(Requested(2), S)
    a.handle(Parked(1, "user 7"), S)
    assert of(Grant, a.handle(Released(1, 1), S)) == [2]
    says(a, 1, 0, 2 * S)
    says(a, 2, 60, 2 * S)
    a.handle(Restored(2, 2), 2 * S)
    residency = a.devices["d0"].residency
    assert residency.fits()
    a.handle(Requested(1), 3 * S)
    assert not residency.fits()


def test_a_suspended_tenant_asks_for_nothing_until_it_goes_on() -> None:
    a = working()
    a.handle(Parked(1, "Slurm", suspended=True), S)
    a.handle(Released(1, 1), S)
    says(a, 1, 0, S)
    assert of(Grant, a.handle(Requested(1), S)) == []
    a.handle(Parked(1, "user 7"), 2 * S)
    a.handle(Frozen(1), 3 * S)
    assert of(Grant, a.handle(Thawed(1), 9 * S)) == []
    assert a.next_deadline() is None
    assert of(Grant, a.handle(Unparked(1), 9 * S)) == [1]


def test_suspended_while_its_memory_comes_back() -> None:
    a = with_parked()
    assert of(Grant, a.handle(Requested(1), 2 * S)) == [1]
    says(a, 1, 30, 2 * S)
    assert of(Revoke, a.handle(Parked(1, "Slurm", suspended=True), 2 * S)) == [1]
    assert of(Leave, a.handle(Released(1, 2), 2 * S)) == [1]
    says(a, 1, 0, 2 * S)
    assert a.devices["d0"].residency.total == 0


def test_resumed_into_a_full_device_it_waits_for_its_turn() -> None:
    a = working(2)
    a.handle(Requested(2), 0)
    a.handle(Parked(1, "Slurm", suspended=True), 0)
    assert of(Grant, a.handle(Released(1, 1), 0)) == [2]
    says(a, 1, 0)
    says(a, 2, 60)
    a.handle(Restored(2, 2), 0)
    a.handle(Requested(1), 0)
    assert of(Grant, a.handle(Unparked(1), S // 2)) == []
    due = a.next_deadline()
    assert due is not None
    assert of(Revoke, a.handle(Tick(), max(due, S))) == [2]
    actions = a.handle(Released(2, 2), 2 * S)
    assert (of(Grant, actions), of(Evict, actions)) == ([1], [2])


def test_a_tenant_frozen_during_its_eviction_evicts_the_rest_when_it_goes_on() -> None:
    a = working(2)
    a.handle(Parked(1, "Slurm", suspended=True), 0)
    a.handle(Released(1, 1), 0)
    says(a, 1, 40)
    a.handle(Frozen(1), S)
    assert a.devices["d0"].residency.evictable(1) == 40
    assert of(Leave, a.handle(Thawed(1), 2 * S)) == [1]


def test_frozen_with_its_lease_it_is_passed_over() -> None:
    a = working(2)
    a.handle(Parked(1, "Slurm", suspended=True), 0)
    assert of(PassedOver, a.handle(Frozen(1), S)) == [1]
    assert a.devices["d0"].residency.evictable(1) == 60, "it could not leave"
    assert of(Grant, a.handle(Requested(2), 2 * S)) == [], "60 more have no room"


def test_a_tenant_that_delays_no_other_may_take_its_time() -> None:
    a = working()
    a.handle(Parked(1, "user 7"), 0)
    for _ in range(20):
        due = a.next_deadline()
        assert due is not None
        actions = a.handle(Tick(), due)
        assert not of(Overrun, actions)
        assert not of(Forfeit, actions)
    assert a.tenants[1].usage["d0"].overruns == 0


def test_an_overrun_beside_a_waiter_is_one() -> None:
    a = working(2)
    a.handle(Parked(1, "user 7"), 0)
    a.handle(Requested(2), S)
    due = a.next_deadline()
    assert due is not None
    assert of(Overrun, a.handle(Tick(), due)) == [1]


def test_unparked_it_brings_back_what_there_is_room_for() -> None:
    a = working()
    a.handle(Parked(1, "user 7"), 0)
    a.handle(Released(1, 1), 0)
    says(a, 1, 0)
    assert of(Preload, a.handle(Unparked(1), S)) == [1]
    assert a.tenants[1].parked is None


def test_a_tenant_that_ends_during_its_eviction_leaves_nothing() -> None:
    a = working()
    a.handle(Parked(1, "user 7"), 0)
    a.handle(Released(1, 1), 0)
    says(a, 1, 30)
    a.handle(Closed(1), S)
    residency = a.devices["d0"].residency
    assert (residency.total, residency.resident, residency.shares) == (0, 0, {})
    assert a.next_deadline() is None


def test_a_tenant_that_stood_still_comes_behind_those_that_its_memory_kept_out() -> None:
    """Else a job that is stopped whenever another one is granted has all the turns."""
    a = working(2)
    a.handle(Requested(2), 0)
    assert of(PassedOver, a.handle(Frozen(1), S)) == [1]
    assert of(Grant, a.handle(Released(1, 1), 2 * S)) == []
    assert of(Grant, a.handle(Requested(1), 2 * S)) == []
    actions = a.handle(Thawed(1), 3 * S)
    assert (of(Grant, actions), of(Evict, actions)) == ([2], [1])


def test_parked_and_then_suspended_it_is_parked_when_it_goes_on() -> None:
    a = with_parked()
    a.handle(Parked(1, "Slurm", suspended=True), 2 * S)
    assert of(Preload, a.handle(Unparked(1), 3 * S)) == []
    parked = a.tenants[1].parked
    assert parked
    assert (parked.by, parked.since, parked.suspended) == ("user 7", S, False)
    assert of(Grant, a.handle(Requested(1), 4 * S)) == [1]
    assert a.tenants[1].parked is None


def test_parked_suspended_and_asked_for_it_is_served_when_it_goes_on() -> None:
    a = with_parked()
    a.handle(Parked(1, "Slurm", suspended=True), 2 * S)
    assert of(Grant, a.handle(Requested(1), 2 * S)) == []
    assert of(Grant, a.handle(Unparked(1), 3 * S)) == [1]
    assert a.tenants[1].parked is None


def test_parked_while_its_memory_comes_back_all_leaves() -> None:
    a = with_parked()
    assert of(Grant, a.handle(Requested(1), 2 * S)) == [1]
    says(a, 1, 30, 2 * S)
    assert of(Revoke, a.handle(Parked(1, "user 7"), 2 * S)) == [1]
    assert of(Leave, a.handle(Released(1, 2), 2 * S)) == [1]
    says(a, 1, 0, 2 * S)
    assert a.devices["d0"].residency.total == 0


def test_a_gang_is_parked_on_all_its_devices() -> None:
    a = Arbiter({"d0": 100, "d1": 100}, policy.make)
    a.handle(Opened(1, ("d0", "d1"), "auto", S, swaps=True), 0)
    for uuid in ("d0", "d1"):
        a.handle(MemoryChanged(1, uuid, 60, 0, 60), 0)
    assert of(Grant, a.handle(Requested(1), 0)) == [1]
    a.handle(Restored(1, 1), 0)
    assert of(Revoke, a.handle(Parked(1, "user 7"), S)) == [1]
    assert of(Leave, a.handle(Released(1, 1), S)) == [1]
    a.handle(MemoryChanged(1, "d0", 60, 0, 0), S)
    assert of(Grant, a.handle(Requested(1), S)) == [], "some of it is still leaving"
    assert of(Grant, a.handle(MemoryChanged(1, "d1", 60, 0, 0), S)) == [1]
