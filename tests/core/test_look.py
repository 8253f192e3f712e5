"""A look along the line that goes on where it stopped lets in whom one from the beginning would."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leased import policy
from leased.core.arbiter import (
    Action,
    Arbiter,
    Closed,
    Event,
    Frozen,
    Grant,
    Opened,
    QuantumSet,
    Released,
    Requested,
    Tenant,
    Tick,
)
from leased.core.cohort import ALONE, Cohort
from leased.core.look import Front, Look
from leased.core.turns import Turns
from tests.bench.crowds import Crowd, Member
from tests.core.adversary import Draw
from tests.core.draws import random_scenario
from tests.core.mixes import any_scenario
from tests.core.silent import Silent
from tests.core.world import World

SEEDS = (703, 5000032, 5000039)  # the last two with fair: somebody lines up before a front
EVENTS = 600
TENANTS, DEVICES = 60, 4
MS = 1_000_000


def begin_again(*_: object) -> bool:
    """No look is ever continued."""
    return False


def both(
    monkeypatch: pytest.MonkeyPatch, play: Callable[[], list[object]]
) -> tuple[list[object], list[object]]:
    """The same with looks that go on, and with those that always begin again."""
    going_on = play()
    with monkeypatch.context() as patched:
        patched.setattr(Turns, "_goes_on", begin_again)
        return going_on, play()


def run(draw: Draw, seed: int, policy_name: str) -> list[object]:
    heard: list[object] = []

    def handled(now: int, event: Event, actions: list[Action]) -> None:
        heard.append((now, event, list(actions)))

    World(draw(seed), EVENTS, handled=handled, policy_name=policy_name, judge=Silent).run()
    return heard


@pytest.mark.parametrize("policy_name", policy.names())
@pytest.mark.parametrize("draw", [random_scenario, any_scenario])
def test_the_same_are_granted(
    monkeypatch: pytest.MonkeyPatch, draw: Draw, policy_name: str
) -> None:
    for seed in SEEDS:
        going_on, anew = both(monkeypatch, lambda n=seed: run(draw, n, policy_name))  # type: ignore[misc]
        assert going_on == anew


class Listening(Crowd):
    """A crowd of which every event is written down with what came of it."""

    def __init__(self, policy_name: str) -> None:
        self.heard: list[object] = []
        locks = ("on", "auto", "auto", "auto")
        gangs = [tuple(d for d in range(DEVICES) if (n % 15 + 1) >> d & 1) for n in range(TENANTS)]
        super().__init__(
            [Member(gang, locks[n % 4], 0) for n, gang in enumerate(gangs)], policy_name
        )

    def do(self, event: Event) -> list[Action]:
        actions = super().do(event)
        self.heard.append((self.now, event, actions))
        return actions


def crowd(policy_name: str) -> list[object]:
    listening = Listening(policy_name)
    listening.measure(EVENTS)
    return listening.heard


@pytest.mark.parametrize("policy_name", policy.names())
def test_the_same_of_a_crowd_are_granted(monkeypatch: pytest.MonkeyPatch, policy_name: str) -> None:
    """Many that fit together are granted at once, again and again."""
    going_on, anew = both(monkeypatch, lambda: crowd(policy_name))
    assert going_on == anew


def test_a_crowd_is_granted_in_few_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one look from the beginning for each grant: that would cost as much as all who wait."""
    begun: list[int] = []
    begins = Turns.begin

    def counted(self: Turns, mask: int) -> Look:
        begun.append(mask)
        return begins(self, mask)

    monkeypatch.setattr(Turns, "begin", counted)
    heard = crowd("fcfs")
    grants = sum("Grant(" in repr(actions) for actions in heard)
    assert grants > 20
    looks, begun[:] = len(begun), []
    monkeypatch.setattr(Turns, "_goes_on", begin_again)
    crowd("fcfs")
    assert looks < len(begun) / 3


# -- what lets somebody in whom the look has passed ------------------------------------------


HOLDER, GANG, SINGLE, FREE, LAST = range(1, 6)


def kept_out() -> Arbiter:
    """The gang waits for the holder, whose quantum ends in a moment, and the single device that
    is free meanwhile is not worth a grant to the third."""
    a = Arbiter({"d0": 100, "d1": 100}, policy.make)
    both = "d0", "d1"
    for tenant, gang in ((FREE, both), (HOLDER, ("d0",)), (GANG, both), (SINGLE, ("d1",))):
        a.handle(Opened(tenant, gang, "off" if tenant == FREE else "on", 10 * MS), 0)
        a.handle(Requested(tenant), 0)
    assert a.rules.queue == [GANG, SINGLE]
    return a


def granted(actions: list[Action]) -> list[int]:
    return [action.tenant for action in actions if isinstance(action, Grant)]


@pytest.mark.parametrize(
    "event", [Closed(GANG), Frozen(GANG), QuantumSet("d0", 1000 * MS), Released(HOLDER, 2)]
)
def test_a_waiter_that_was_passed_is_let_in_later(event: Event) -> None:
    """The gang leaves the line, its turn is later, or the holder has gone sooner."""
    a = kept_out()
    expected = GANG if isinstance(event, Released) else SINGLE
    assert granted(a.handle(event, MS)) == [expected]


@pytest.mark.parametrize("event", [Closed(GANG), Released(HOLDER, 2)])
def test_a_waiter_that_was_passed_is_let_in_while_the_holder_drains(event: Event) -> None:
    a = kept_out()
    a.handle(Tick(), 10 * MS)
    a.handle(Opened(LAST, ("d1",), "on", 10 * MS), 11 * MS)
    assert a.handle(Requested(LAST), 11 * MS) == []
    expected = GANG if isinstance(event, Released) else SINGLE
    assert granted(a.handle(event, 12 * MS)) == [expected]


def test_a_waiter_that_lines_up_before_a_front_ends_its_being_one() -> None:
    """Who stands behind somebody is at the front no more, and its gap is not what counts."""
    look = Look(0b11, 0b11)
    front, comer = (
        Cohort(n, (tuple(gang), "on", False, True), mask)
        for n, gang, mask in ((1, ("d0", "d1"), 0b11), (2, ("d0",), 0b01))
    )
    for cohort, place in ((front, 2), (comer, 1)):
        cohort.heeds, cohort.place = ALONE, place
    holder = Tenant(1, ("d0", "d1"), "on", MS)
    look.pass_front(Front(holder, until=100 * MS), front, 0)
    look.finish()
    assert not look.is_no_news(comer, blocked=True, behind=True)
    comer.place = 3
    assert look.is_no_news(comer, blocked=True, behind=True)
    assert not look.is_no_news(comer, blocked=True, behind=False), "it is a front itself"
