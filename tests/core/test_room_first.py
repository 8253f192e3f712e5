"""Managed memory beside swapped memory: the driver kills a program whose pages find no room, so
its holder hears of its lease once what others have to evict has left."""

from __future__ import annotations

from leased import policy
from leased.core.actions import Action, Contend, Evict, Grant, Revoke
from leased.core.arbiter import (
    Arbiter,
    Closed,
    DrainSet,
    Frozen,
    MemoryChanged,
    Opened,
    Released,
    Requested,
    Thawed,
    Tick,
)

S = 1_000_000_000
MANAGED, SWAPS, NEXT = 1, 2, 3


def of(kind: type[Action], actions: list[Action]) -> list[int]:
    return [action.tenant for action in actions if isinstance(action, kind)]


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
