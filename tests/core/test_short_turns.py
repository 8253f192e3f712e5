"""Who waits and has handled a signal gets a short turn soon, which costs others no quantum."""

from __future__ import annotations

import pytest

from leased import policy
from leased.core.actions import Action, Contend, Grant, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import (
    Closed,
    Event,
    Frozen,
    MemoryChanged,
    Opened,
    PolicySet,
    Released,
    Requested,
    Restored,
    Signalled,
    Tick,
)
from leased.core.rules import SHORT_NS
from leased.core.short_turns import AGAIN_NS, KEEP_NS, PATIENCE_NS, TURNS, ShortTurns
from leased.core.state import Tenant
from tests.core.adversary import counterexample, fault_of, run
from tests.core.judge import Broken
from tests.core.line import queue
from tests.core.scenario import SIGNAL, Job, Poke, Scenario
from tests.core.signalling import signalling_scenario
from tests.core.world import World
from tests.support.together import pairwise

S = 1_000_000_000
QUANTUM = 60 * S


class Node:
    """An arbiter with devices d0 and d1, and jobs that always want what they have."""

    def __init__(self, *gangs: str, name: str = "fcfs", swaps: bool = False) -> None:
        """A gang: "0", "1" or "01". The first job holds it; the others wait in their order."""
        self.a = Arbiter({"d0": 100, "d1": 100}, policy.make)
        for uuid in self.a.devices:
            self.a.handle(PolicySet(uuid, name), 0)
        self.events: list[tuple[int, Action]] = []
        self.now = 0
        for n, gang in enumerate(gangs, 1):
            uuids = tuple(f"d{d}" for d in gang)
            self.does(Opened(n, uuids, "on", QUANTUM, swaps))
            if swaps:
                self.does(MemoryChanged(n, uuids[0], 60, 0, 0))
            self.does(Requested(n))

    def does(self, event: Event, at: int | None = None) -> None:
        """At that time; whoever is revoked releases then and asks again, and swapped memory comes
        back at once."""
        self.now = self.now if at is None else at
        left: list[Event] = [event]
        while left:
            for action in self.a.handle(left.pop(0), self.now):
                self.events.append((self.now, action))
                if isinstance(action, Revoke):
                    left += [Released(action.tenant, action.epoch), Requested(action.tenant)]
                elif isinstance(action, Grant) and self.a.tenants[action.tenant].swaps:
                    left.append(Restored(action.tenant, action.epoch))
            if not left and (self.a.next_deadline() or self.now + 1) <= self.now:
                left.append(Tick())

    def until(self, end: int) -> None:
        """Time passes up to then."""
        while (due := self.a.next_deadline()) is not None and due <= end:
            self.does(Tick(), max(due, self.now))
        self.now = end

    def turns(self) -> list[tuple[int, int]]:
        """Of all grants: when, in whole seconds, and to whom."""
        return [(when // S, one.tenant) for when, one in self.events if isinstance(one, Grant)]

    def holders(self) -> list[int]:
        return sorted(t.id for t in self.a.tenants.values() if t.lease)


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("name", policy.names())
def test_a_waiter_hears_its_signal_soon(name: str, swaps: bool) -> None:
    """Also the only one, for whom the holder has been told already. Then the holder goes on."""
    node = Node("0", "0", name=name, swaps=swaps)
    node.does(Signalled(2), 10 * S)
    assert node.holders() == [2]
    node.until(16 * S)
    assert node.turns() == [(0, 1), (10, 2), (15, 1)]


def test_the_holder_loses_nothing_of_its_quantum() -> None:
    """However often it is interrupted. A signal is good for several short turns."""
    node = Node("0", "0")
    node.does(Signalled(2), 10 * S)
    node.until(QUANTUM + TURNS * SHORT_NS - 1)
    assert node.holders() == [1]
    node.until(QUANTUM + TURNS * SHORT_NS)
    short = [(10, 2), (15, 1), (30, 2), (35, 1), (50, 2), (55, 1)]
    assert node.turns() == [(0, 1), *short, (75, 2)]


def test_a_short_turn_is_as_long_however_short_the_quantum() -> None:
    """A checkpoint takes as long as it does. What was had there is taken off, as far as may be."""
    node = Node("0")
    node.does(Opened(2, ("d0",), "on", S))
    node.does(Requested(2))
    node.does(Signalled(2), 10 * S)
    end = QUANTUM + TURNS * SHORT_NS
    node.until(end)
    short = [(10, 2), (15, 1), (30, 2), (35, 1), (50, 2), (55, 1)]
    assert node.turns() == [(0, 1), *short, (end // S, 2)]
    node.until(end + S // 2)
    assert node.holders() == [1]


def test_short_turns_have_at_most_half_of_the_time() -> None:
    """However many jobs have handled signals: after each the holder has as long as it took."""
    node = Node("0", "0", "0", "0", "0")
    for waiter in (2, 3, 4, 5):
        node.does(Signalled(waiter), 10 * S)
    node.until(50 * S)
    short = [(10, 2), (15, 1), (20, 3), (25, 1), (30, 4), (35, 1), (40, 5), (45, 1)]
    assert node.turns()[:9] == [(0, 1), *short]


def test_everybody_has_the_place_of_before() -> None:
    """The third of four waiters has short turns; then all have their turns in their order. What it
    had before its turn is taken off that."""
    node = Node("0", "0", "0", "0", "0")
    node.does(Signalled(4), 10 * S)
    node.until(250 * S)
    assert node.turns()[-5:] == [(55, 1), (75, 2), (135, 3), (195, 4), (240, 5)]


def test_the_holder_of_a_short_turn_may_be_idle_for_a_while() -> None:
    node = Node("0", "0")
    node.does(Signalled(2), 10 * S)
    told = [one for _, one in node.events if isinstance(one, Contend) and one.tenant == 2]
    assert [one.idle_ns for one in told] == [PATIENCE_NS]


def test_a_place_is_not_kept_for_ever() -> None:
    node = Node("0", "0", "0")
    node.does(Signalled(2), 10 * S)
    lease = node.a.tenants[2].lease
    assert lease
    node.does(Released(2, lease.epoch), 11 * S)
    node.until(11 * S + KEEP_NS)
    node.does(Requested(2))
    assert queue(node.a)[-1] == 2


def test_a_gang_has_all_its_devices_for_its_short_turn() -> None:
    """And those who were interrupted do not come between."""
    node = Node("0", "1", "01")
    node.does(Signalled(3), 10 * S)
    assert node.holders() == [3]
    node.until(15 * S)
    assert node.holders() == [1, 2]


@pytest.mark.parametrize("event", [Closed(2), Frozen(2)])
def test_the_holder_goes_on_at_once_if_the_waiter_is_gone(event: Event) -> None:
    a = Node("0", "0", "0").a
    revoked = a.handle(Signalled(2), 10 * S) + a.handle(Tick(), 10 * S)
    assert [one.tenant for one in revoked if isinstance(one, Revoke)] == [1]
    a.handle(event, 10 * S)
    a.handle(Released(1, 1), 11 * S)
    a.handle(Requested(1), 11 * S)
    lease = a.tenants[3].lease
    assert lease
    assert lease.due is not None
    assert lease.due >= 11 * S  # whoever comes next has a turn like any other


@pytest.mark.parametrize("again", [0, 1])
def test_signals_that_come_all_the_time_are_heard_now_and_then(again: int) -> None:
    node = Node("0", "0", "0")
    for second in range(10, 61):
        node.until(second * S)
        node.does(Signalled(2))
        if again:
            node.does(Signalled(3))
    short = [when for when, one in node.events if isinstance(one, Grant) and one.tenant == 2]
    assert all(b - a >= AGAIN_NS for a, b in pairwise(short))
    held = node.a.usage(1, node.now)["d0"].lease_ns
    assert held * 2 >= 60 * S, "short turns have more than half of the time"


def test_short_turns_wait_for_each_other_where_gangs_connect_devices() -> None:
    apart, together = Node("0", "1", "0", "1"), Node("0", "1", "0", "1", "01")
    for node in (apart, together):
        node.does(Signalled(3), 10 * S)
        node.does(Signalled(4), 10 * S)
    assert apart.holders() == [3, 4]
    assert together.holders() == [2, 3]


def test_who_does_not_wait_gets_nothing() -> None:
    node = Node("0", "0")
    node.does(Signalled(1), S)
    node.does(Signalled(9), S)
    node.until(60 * S)
    node.does(Tick())
    assert node.turns() == [(0, 1), (60, 2)]


def test_a_turn_that_comes_by_itself_is_not_short() -> None:
    """Though it comes for a signal, but before the tenant could hurry."""
    node = Node("0", "0")
    node.does(Signalled(2), 10 * S)
    node.until(29 * S)
    node.does(Closed(1))
    assert node.holders() == [2]
    node.does(Opened(3, ("d0",), "on", QUANTUM))
    node.does(Requested(3))
    node.until(60 * S)
    assert node.holders() == [2]


# -- the adversary ----------------------------------------------------------------------


@pytest.mark.parametrize("name", policy.names())
def test_no_rule_is_broken_where_signals_come(name: str) -> None:
    for seed in range(4):
        found = run(seed, name, signalling_scenario)
        assert found.fault is None, counterexample(seed, 100, name, signalling_scenario)


def crowd() -> Scenario:
    """Three jobs handle signals all the time, and one does not."""
    jobs = (Job((0,), quantum=1000, busy=600_000),) * 4
    pokes = (Poke(at, SIGNAL, who) for at in range(0, 1_500_000, 1000) for who in (1, 2, 3))
    return Scenario(1, 1500, jobs, tuple(pokes))


def always(self: ShortTurns, tenant: Tenant, mask: int) -> int | None:
    """Whoever handles a signal may have a short turn at once."""
    del tenant, mask
    return self.rules.now


@pytest.mark.long
def test_signals_keep_nobody_from_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    World(crowd(), 40_000).run()
    monkeypatch.setattr(ShortTurns, "_may_begin", always)
    with pytest.raises(Broken, match="0 has waited"):
        World(crowd(), 40_000).run()


@pytest.mark.parametrize("policy_name", policy.names())
def test_a_gang_interrupts_jobs_that_hold_since_before_a_restart(policy_name: str) -> None:
    """Both of them were kept the same place, and the line could not be put in order."""
    one, other = (Job((d,), quantum=30_000, busy=60_000) for d in (0, 1))
    scenario = Scenario(
        *(2, 200),
        (one, other, Job((0,)), Job((1,)), Job((0, 1))),
        (Poke(at=3000, what="restart", who=0), Poke(at=9000, what=SIGNAL, who=4)),
    )
    assert fault_of(scenario, policy_name) is None
