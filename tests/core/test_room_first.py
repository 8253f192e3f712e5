"""Managed memory beside swapped memory: the driver kills a program whose pages find no room, so
its holder hears of its lease once what others have to evict has left, and whoever swaps beside it
leaves it some room."""

from __future__ import annotations

from leased import policy
from leased.core.actions import Action, Contend, Evict, Grant, Preload, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import (
    Closed,
    DrainSet,
    Frozen,
    MemoryChanged,
    Opened,
    Released,
    Requested,
    Restored,
    Thawed,
    Tick,
)
from tests.core.line import of

S = 1_000_000_000
MANAGED, SWAPS, NEXT = 1, 2, 3


def arbiter(resident: int = 90, managed: int = 40) -> tuple[Arbiter, list[Action]]:
    """A tenant whose memory is managed has asked for the device, which another one's swapped
    memory fills that does not hold."""
    a = Arbiter({"d0": 100}, policy.make)
    for tenant, swaps in ((MANAGED, False), (SWAPS, True), (NEXT, False)):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S, swaps=swaps), 0)
    a.handle(MemoryChanged(SWAPS, "d0", 90, 0, resident), 0)
    a.handle(MemoryChanged(MANAGED, "d0", managed, 0, None), 0)
    return a, a.handle(Requested(MANAGED), 0)


def test_a_holder_hears_of_its_lease_when_the_room_is_there() -> None:
    a, actions = arbiter()
    assert (of(Evict, actions), of(Grant, actions)) == ([SWAPS], [])
    lease = a.tenants[MANAGED].lease
    assert lease
    assert lease.restoring
    assert of(Grant, a.handle(MemoryChanged(SWAPS, "d0", 90, 0, 70), S)) == []
    told = a.handle(MemoryChanged(SWAPS, "d0", 90, 0, 60), 2 * S)
    assert of(Grant, told) == [MANAGED]
    assert not lease.restoring
    assert lease.since == 2 * S, "its quantum begins now"


def test_it_hears_at_once_where_nothing_has_to_leave() -> None:
    _, actions = arbiter(resident=60)
    assert (of(Evict, actions), of(Grant, actions)) == ([], [MANAGED])


def test_its_grant_says_that_others_wait_by_now() -> None:
    a, _ = arbiter()
    assert of(Contend, a.handle(Requested(NEXT), S)) == []
    (grant,) = [
        action
        for action in a.handle(MemoryChanged(SWAPS, "d0", 90, 0, 0), 2 * S)
        if isinstance(action, Grant)
    ]
    assert grant.idle_ns is not None


def test_memory_that_leaves_slowly_is_waited_for() -> None:
    a, _ = arbiter()
    a.handle(Requested(NEXT), 0)
    for second in range(1, 12, 3):
        actions = a.handle(MemoryChanged(SWAPS, "d0", 90, 0, 90 - second), second * S)
        assert (of(Grant, actions), of(Revoke, actions)) == ([], [])
    assert of(Grant, a.handle(MemoryChanged(SWAPS, "d0", 90, 0, 60), 13 * S)) == [MANAGED]


def test_a_lease_that_nobody_has_heard_of_ends_without_a_word() -> None:
    a, _ = arbiter()
    a.handle(DrainSet("d0", True), S)
    due = a.next_deadline()
    assert due
    actions = a.handle(Tick(), due)
    assert (of(Revoke, actions), of(Grant, actions)) == ([], [])
    tenant = a.tenants[MANAGED]
    assert tenant.lease is None
    assert tenant.waiting, "as before"
    assert of(Grant, a.handle(DrainSet("d0", False), due)) == [MANAGED]


def test_memory_that_does_not_leave_is_waited_for_only_so_long() -> None:
    a, _ = arbiter(managed=20)
    due = a.next_deadline()
    assert due
    assert of(Grant, a.handle(Tick(), due)) == [MANAGED], "in the room that is left"


def test_the_memory_of_one_that_ends_or_stands_still_is_not_waited_for() -> None:
    a, _ = arbiter()
    assert of(Grant, a.handle(Closed(SWAPS), S)) == [MANAGED]
    a, _ = arbiter()
    assert of(Grant, a.handle(Frozen(SWAPS), S)) == [MANAGED], "in the room that is left"


def test_nobody_is_let_in_where_memory_that_stays_leaves_next_to_nothing() -> None:
    a, _ = arbiter(resident=60)
    a.handle(MemoryChanged(SWAPS, "d0", 100, 0, 100), 0)
    lease = a.tenants[MANAGED].lease
    assert lease
    a.handle(Released(MANAGED, lease.epoch), S)
    a.handle(Frozen(SWAPS), S)
    assert of(Grant, a.handle(Requested(MANAGED), 2 * S)) == []
    assert a.devices["d0"].residency.keep_out(MANAGED) == {SWAPS: 100}
    assert of(Grant, a.handle(Requested(NEXT), 2 * S)) == [NEXT], "it has no memory there"
    a.handle(Released(NEXT, a.tenants[NEXT].granted), 3 * S)
    a.handle(Thawed(SWAPS), 4 * S)
    assert of(Grant, a.handle(MemoryChanged(SWAPS, "d0", 100, 0, 60), 5 * S)) == [MANAGED]


# -- what was told to come, and then to leave ------------------------------------------------------


def recalled() -> tuple[Arbiter, list[Action]]:
    """A waiter was told to bring in 50 bytes, and to evict 40 of them before it has said more."""
    a = Arbiter({"d0": 100}, policy.make)
    for tenant, swaps, size in ((MANAGED, False, 50), (SWAPS, True, 50), (NEXT, False, 90)):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S, swaps=swaps), 0)
        a.handle(MemoryChanged(tenant, "d0", size, 0, size if swaps else None), 0)
    a.handle(MemoryChanged(SWAPS, "d0", 50, 0, 0), 0)
    a.handle(Requested(MANAGED), 0)
    a.handle(Requested(NEXT), 0)
    assert of(Preload, a.handle(Requested(SWAPS), 0)) == [SWAPS]
    actions = a.handle(Released(MANAGED, a.tenants[MANAGED].granted), S)
    assert of(Evict, actions) == [SWAPS]
    return a, actions


def test_memory_that_never_came_is_not_waited_for() -> None:
    assert of(Grant, recalled()[1]) == [NEXT]


def test_memory_that_comes_all_the_same_leaves_again() -> None:
    residency = recalled()[0].devices["d0"].residency
    residency.set_bytes(SWAPS, 50, False, reported=50)
    assert (residency.leaving(SWAPS), residency.of(SWAPS).resident) == (40, 10)
    residency.set_bytes(SWAPS, 50, False, reported=10)
    assert (residency.leaving(SWAPS), residency.of(SWAPS).resident) == (0, 10)


# -- beside a holder with managed memory -------------------------------------------------------

FIRST, SECOND = 4, 5


def beside(managed: int) -> Arbiter:
    """A tenant whose memory is managed never heeds locks and holds, and one holds that swaps."""
    a = Arbiter({"d0": 100}, policy.make)
    a.handle(Opened(MANAGED, ("d0",), "off", 10 * S, swaps=False), 0)
    a.handle(MemoryChanged(MANAGED, "d0", managed, 0, None), 0)
    a.handle(Requested(MANAGED), 0)
    for tenant in (FIRST, SECOND):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S, swaps=True), 0)
        for there in (60, 0):
            a.handle(MemoryChanged(tenant, "d0", 60, 0, there), 0)
    assert of(Grant, a.handle(Requested(FIRST), 0)) == [FIRST]
    a.handle(MemoryChanged(FIRST, "d0", 60, 0, 60), 0)
    a.handle(Restored(FIRST, a.tenants[FIRST].granted), 0)
    return a


def test_whoever_swaps_beside_it_waits_for_what_leaves() -> None:
    a = beside(90)
    a.handle(Requested(SECOND), 0)
    actions = a.handle(Released(FIRST, a.tenants[FIRST].granted), S)
    assert (of(Evict, actions), of(Grant, actions)) == ([FIRST], [])
    assert of(Grant, a.handle(MemoryChanged(FIRST, "d0", 60, 0, 0), 2 * S)) == [SECOND]


def test_nobody_is_displaced_for_whoever_is_next_there() -> None:
    a = beside(20)
    a.handle(Opened(NEXT, ("d0",), "on", 10 * S, swaps=True), 0)
    a.handle(MemoryChanged(NEXT, "d0", 20, 0, 20), 0)
    assert of(Preload, a.handle(Requested(SECOND), 0)) == []


def test_swapped_memory_leaves_it_the_room_that_the_driver_needs() -> None:
    a = beside(90)
    residency = a.devices["d0"].residency
    a.handle(MemoryChanged(FIRST, "d0", 100, 0, 60), S)
    assert residency.of(FIRST).resident == 100 - 100 // 16
    assert residency.of(MANAGED).resident == 100 // 16


def test_what_swaps_leaves_at_the_end_of_its_turn() -> None:
    a = beside(20)
    a.handle(Requested(SECOND), 0)
    actions = a.handle(Released(FIRST, a.tenants[FIRST].granted), S)
    assert [action.bytes for action in actions if isinstance(action, Evict)] == [60]
    assert of(Grant, a.handle(MemoryChanged(FIRST, "d0", 60, 0, 10), 2 * S)) == []
    assert of(Grant, a.handle(MemoryChanged(FIRST, "d0", 60, 0, 0), 3 * S)) == [SECOND]


def test_a_holder_is_not_told_to_evict_what_it_keeps() -> None:
    a = beside(20)
    assert of(Evict, a.handle(MemoryChanged(MANAGED, "d0", 90, 0, None), S)) == []
    actions = a.handle(Released(FIRST, a.tenants[FIRST].granted), 2 * S)
    assert [action.bytes for action in actions if isinstance(action, Evict)] == [60]
