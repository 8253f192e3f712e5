"""Whoever waits and could run is granted, soon, whatever keeps others from running."""

from __future__ import annotations

import pytest

from leased import policy
from leased.core.actions import Grant, Revoke
from leased.core.arbiter import DRAIN_NS, Arbiter
from leased.core.events import (
    Closed,
    DrainSet,
    Event,
    Frozen,
    MemoryChanged,
    Opened,
    PolicySet,
    QuantumSet,
    Released,
    Requested,
    Restored,
    Tick,
)
from tests.core.line import of, queue

S = 1_000_000_000
MS = 1_000_000


def arbiter(devices: int = 1) -> Arbiter:
    return Arbiter({f"d{n}": 100 for n in range(devices)}, policy.make)


def opened(a: Arbiter, tenant: int, gang: str = "d0", swaps: bool = False, tq: int = 10) -> None:
    a.handle(Opened(tenant, tuple(gang.split()), "on", tq * S, swaps), a.now)


# -- who could run again is seen, on all its devices -----------------------------------


def test_room_on_one_device_is_news_on_the_others_of_a_gang() -> None:
    """The gang could not run for lack of room on d0. Its other device has a holder."""
    a = arbiter(2)
    opened(a, 1, "d1")
    opened(a, 2, "d0")
    opened(a, 3, "d0 d1", swaps=True)
    a.handle(Requested(1), 0)
    a.handle(MemoryChanged(2, "d0", 60, 50), 0)
    a.handle(MemoryChanged(3, "d0", 60, 0, 0), 0)
    a.handle(Requested(3), 0)
    assert a.next_deadline() is None, "it could not run and holds nobody up"
    a.handle(MemoryChanged(2, "d0", 60, 0), S)
    assert a.next_deadline() == 10 * S, "the holder's quantum ends"
    a.handle(Tick(), 10 * S)
    assert of(Grant, a.handle(Released(1, 1), 10 * S)) == [3]


def test_a_waiter_that_can_no_longer_run_lets_those_behind_it_go_on() -> None:
    a = arbiter(2)
    opened(a, 1, "d0")
    opened(a, 2, "d0 d1", swaps=True)
    opened(a, 3, "d1")
    opened(a, 4, "d0")
    a.handle(MemoryChanged(4, "d0", 90), 0)
    a.handle(Requested(1), 0)
    a.handle(MemoryChanged(2, "d0", 60, 0, 0), 0)
    a.handle(Requested(2), 0)
    a.handle(Tick(), 10 * S)
    assert of(Grant, a.handle(Requested(3), 10 * S)) == [], "the gang is due as soon as 1 drains"
    assert of(Grant, a.handle(MemoryChanged(1, "d0", 0, 70), 11 * S)) == [3]


def test_the_end_of_fixed_memory_is_room() -> None:
    a = arbiter()
    opened(a, 1)
    opened(a, 2, swaps=True)
    opened(a, 3)
    a.handle(MemoryChanged(1, "d0", 0, 50), 0)
    a.handle(MemoryChanged(2, "d0", 60, 0, 0), 0)
    a.handle(MemoryChanged(3, "d0", 60), 0)
    assert a.handle(Requested(2), 0) == []
    assert of(Grant, a.handle(Closed(1), S)) == [2], "though what all have does not fit yet"


def test_a_waiter_that_could_not_run_is_last_when_it_can() -> None:
    """Those who could run meanwhile are before it, so nobody is passed for ever by others who
    come and go."""
    a = arbiter()
    opened(a, 1)
    for tenant in (2, 3):
        opened(a, tenant, swaps=True)
        a.handle(MemoryChanged(tenant, "d0", 60 if tenant == 2 else 10, 0, 0), 0)
    a.handle(Requested(1), 0)
    a.handle(MemoryChanged(1, "d0", 0, 50), 0)
    a.handle(Requested(2), 1)
    a.handle(Requested(3), 2)
    a.handle(MemoryChanged(1, "d0", 0, 0), 3)
    assert queue(a) == [3, 2]
    assert of(Grant, a.handle(Released(1, 1), 4)) == [3]


@pytest.mark.parametrize("why", ["drained", "crowded out"])
def test_many_who_cannot_run_hide_nobody_who_can(why: str) -> None:
    a = arbiter(2)
    opened(a, 0, "d1")
    a.handle(MemoryChanged(0, "d1", 0, 50), 0)
    if why == "drained":
        a.handle(DrainSet("d0", True), 0)
    for tenant in range(1, 100):
        opened(a, tenant, "d0 d1", swaps=why != "drained")
        a.handle(MemoryChanged(tenant, "d1", 60, 0, None if why == "drained" else 0), 0)
        assert of(Grant, a.handle(Requested(tenant), 0)) == []
    opened(a, 100, "d1")
    assert of(Grant, a.handle(Requested(100), 0)) == [100]


# -- gaps before a gang -----------------------------------------------------------------


class Slow:
    """Tenants that always want, and take so many seconds to drain."""

    def __init__(self, a: Arbiter, drains: dict[int, int]):
        self.a = a
        self.drains = drains
        self.now = 0
        self.turns = dict.fromkeys(a.tenants, 0)
        self.releases: list[tuple[int, Released]] = []

    def do(self, event: Event) -> None:
        for action in self.a.handle(event, self.now):
            if isinstance(action, Grant):
                self.turns[action.tenant] += 1
            elif isinstance(action, Revoke):
                end = self.now + self.drains[action.tenant] * S
                self.releases.append((end, Released(action.tenant, action.epoch)))
        if isinstance(event, Released):
            self.do(Requested(event.tenant))

    def run(self, seconds: int) -> None:
        while True:
            due = self.a.next_deadline()
            times = [when for when, _ in self.releases] + ([] if due is None else [due])
            if not times or min(times) > seconds * S:
                return
            self.now = max(self.now, min(times))
            ready = [item for item in self.releases if item[0] <= self.now]
            for item in ready:
                self.releases.remove(item)
                self.do(item[1])
            if not ready:
                self.do(Tick())


def test_a_gang_has_its_turn_however_slowly_others_drain() -> None:
    """Two of them drain for longer than is allowed, each on a device of the gang."""
    a = arbiter(2)
    for tenant, gang in ((1, "d0"), (2, "d1"), (3, "d0 d1")):
        opened(a, tenant, gang)
    world = Slow(a, {1: 11, 2: 11, 3: 1})
    for tenant in (1, 2, 3):
        world.do(Requested(tenant))
    world.run(4000)
    assert world.turns[3] >= 4000 // (10 + 4 * 10 + 10 + 1)


def test_a_wide_gang_has_its_turn_among_many_who_drain_slowly() -> None:
    a = arbiter(8)
    for tenant in range(8):
        opened(a, tenant, f"d{tenant}")
    opened(a, 8, " ".join(a.devices))
    world = Slow(a, {n: 8 + 10 * n // 7 for n in range(9)})
    for tenant in range(9):
        world.do(Requested(tenant))
    world.run(8000)
    assert world.turns[8] >= 8000 // (10 + 4 * 10 + 10 + 19)
    assert all(turns > world.turns[8] / 2 for turns in world.turns.values())


def test_nothing_idles_beside_the_gang_while_one_has_overrun() -> None:
    """But once, so that the gang is not put off again and again."""
    a = arbiter(2)
    for tenant, gang in ((1, "d0"), (2, "d0 d1"), (3, "d1"), (4, "d1")):
        opened(a, tenant, gang)
    a.handle(Requested(1), 0)
    a.handle(Requested(2), 0)
    a.handle(Tick(), 10 * S)
    assert of(Grant, a.handle(Requested(3), 10 * S)) == []
    assert of(Grant, a.handle(Tick(), 10 * S + DRAIN_NS)) == [3]
    (lease,) = [t.lease for t in a.rules.holders("d1")]
    assert lease
    assert lease.due == 10 * S + 2 * DRAIN_NS, "it goes when the first is passed over"
    # That one is passed over, and the one let in beside it hangs as well.
    assert of(Revoke, a.handle(Tick(), 10 * S + 2 * DRAIN_NS)) == [3]
    a.handle(Requested(4), 10 * S + 2 * DRAIN_NS)
    assert of(Grant, a.handle(Tick(), 10 * S + 3 * DRAIN_NS)) == []
    assert of(Grant, a.handle(Tick(), 10 * S + 4 * DRAIN_NS)) == [2]


def test_a_gap_is_looked_at_again_when_the_handoff_has_become_cheap() -> None:
    """The waiter lacked memory, and it would not have been worth it. Then that is there."""
    a = arbiter(2)
    a.devices["d1"].residency.link.bytes_s = 10
    opened(a, 1, "d0", tq=30)
    opened(a, 2, "d0 d1")
    for tenant in (3, 4):
        opened(a, tenant, "d1", swaps=True)
        a.handle(MemoryChanged(tenant, "d1", 60, 0, 0), 0)
        a.handle(Requested(tenant), 0)
        a.handle(MemoryChanged(3, "d1", 60, 0, 60 if tenant == 3 else 40), 0)
        a.handle(MemoryChanged(4, "d1", 60, 0, 0 if tenant == 3 else 60), 0)
        a.handle(Restored(tenant, a.epoch - 1), 0)
        if tenant == 3:
            a.handle(Released(3, a.epoch - 1), 0)
    for tenant in (1, 2, 3):
        a.handle(Requested(tenant), 0)
    assert of(Grant, a.handle(Released(4, 2), S)) == [], "2 s to bring it in, for 29 s"
    a.handle(MemoryChanged(4, "d1", 40, 0, 40), 2 * S)
    assert of(Grant, a.handle(MemoryChanged(3, "d1", 60, 0, 60), 2 * S)) == [3]


# -- debts -----------------------------------------------------------------------------


def test_a_waiter_that_goes_away_takes_no_debt_with_it() -> None:
    a = arbiter()
    opened(a, 1)
    opened(a, 2)
    a.handle(Requested(1), 0)
    a.handle(Requested(2), 0)
    a.handle(Tick(), 10 * S)
    a.handle(Tick(), 10 * S + DRAIN_NS)
    a.handle(Released(1, 1), 14 * S + DRAIN_NS)
    assert a.tenants[1].debt_ns == 4 * S
    a.handle(Requested(1), 14 * S + DRAIN_NS)
    a.handle(Released(2, 2), 15 * S + DRAIN_NS)
    for turn in range(3):  # each time another one waits for a moment
        opened(a, 3 + turn)
        a.handle(Requested(3 + turn), a.now + S)
        a.handle(Closed(3 + turn), a.now)
    assert a.tenants[1].debt_ns == 4 * S


HOLDER, GANG, SINGLE, FREE, LAST = range(1, 6)


def kept_out() -> Arbiter:
    """The gang waits for the holder, whose quantum ends in a moment, and the single device that
    is free meanwhile is not worth a grant to the third."""
    a = arbiter(2)
    both = "d0", "d1"
    for tenant, gang in ((FREE, both), (HOLDER, ("d0",)), (GANG, both), (SINGLE, ("d1",))):
        a.handle(Opened(tenant, gang, "off" if tenant == FREE else "on", 10 * MS), 0)
        a.handle(Requested(tenant), 0)
    assert queue(a) == [GANG, SINGLE]
    return a


@pytest.mark.parametrize(
    "event", [Closed(GANG), Frozen(GANG), QuantumSet("d0", 1000 * MS), Released(HOLDER, 2)]
)
def test_a_waiter_that_was_passed_is_let_in_later(event: Event) -> None:
    """The gang leaves the line, its turn is later, or the holder has gone sooner."""
    a = kept_out()
    expected = GANG if isinstance(event, Released) else SINGLE
    assert of(Grant, a.handle(event, MS)) == [expected]


@pytest.mark.parametrize("event", [Closed(GANG), Released(HOLDER, 2)])
def test_a_waiter_that_was_passed_is_let_in_while_the_holder_drains(event: Event) -> None:
    a = kept_out()
    a.handle(Tick(), 10 * MS)
    a.handle(Opened(LAST, ("d1",), "on", 10 * MS), 11 * MS)
    assert a.handle(Requested(LAST), 11 * MS) == []
    expected = GANG if isinstance(event, Released) else SINGLE
    assert of(Grant, a.handle(event, 12 * MS)) == [expected]


@pytest.mark.parametrize("name", policy.names())
def test_who_fills_a_gap_leaves_room_for_others_until_it_has_to_go(name: str) -> None:
    """The gang waits for the filler anyway, so the device that the holder has left is not idle."""
    a = Arbiter({"d0": 100, "d1": 100}, policy.make)
    for device in a.devices:
        a.handle(PolicySet(device, name), 0)
    gangs = {1: ("d0",), 2: ("d0", "d1"), 3: ("d1",), 4: ("d0",)}
    for tenant, gang in gangs.items():
        a.handle(Opened(tenant, gang, "on", 600 * S), 0)
    for tenant in (1, 2, 3):
        a.handle(Requested(tenant), tenant * MS)
    assert a.tenants[3].lease is not None
    a.handle(Released(1, 1), S)
    actions = a.handle(Requested(4), 2 * S)
    assert [g.tenant for g in actions if isinstance(g, Grant)] == [4]
    filler, other = a.tenants[3].lease, a.tenants[4].lease
    assert filler is not None
    assert other is not None
    assert other.due == filler.due, "the gang waits no longer for it"
