"""When the optimiser of a chain searches, with a chain that has a clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import sin

import pytest

from leased.chains import optimiser
from leased.chains.optimiser import Optimiser, S
from leased.chains.search import MOST_COMPONENTS, plain
from tests.chains.model import Chain

LOOK_NS = S // 2
SLOW_THIRD = Chain((1000.0,) * 3, (10, 10, 80), crowd=0.1)


@dataclass
class Running:
    """A chain that is looked at twice a second. rate: calls of its last component in a second, at a
    time of so many seconds."""

    n: int
    rate: Callable[[float, tuple[int, ...]], float]
    now: int = 0
    calls: float = 0.0
    begun: list[float] = field(default_factory=list)  # when searches began, s

    def __post_init__(self) -> None:
        self.optimiser = Optimiser(tuple(range(self.n)))

    def runs(self, seconds: float) -> Optimiser:
        for _ in range(round(seconds * S / LOOK_NS)):
            self.now += LOOK_NS
            self.calls += self.rate(self.now / S, self.optimiser.division) * LOOK_NS / S
            before = self.optimiser.search
            self.optimiser.look(self.now, int(self.calls), self.now)
            if self.optimiser.search is not None and before is None:
                self.begun.append(self.now / S)
        return self.optimiser


def steady(chain: Chain) -> Callable[[float, tuple[int, ...]], float]:
    return lambda _, division: chain.throughput(division)


def test_a_chain_that_runs_steadily_has_a_division_soon_and_keeps_it() -> None:
    chain = Running(3, steady(SLOW_THIRD))
    found = chain.runs(90)
    assert found.why == optimiser.KEEPS
    assert found.found is not None
    assert found.found.bottleneck == 2
    assert SLOW_THIRD.throughput(found.division) > 1.2 * SLOW_THIRD.throughput(plain(3))
    assert len(found.trials) <= found.bound
    chain.runs(600)
    assert len(chain.begun) == 1


def test_a_chain_that_stands_still_during_a_search_is_searched_again() -> None:
    """For more than half a minute, in the middle of its trials."""
    chain = Running(3, lambda s, d: 0.0 if 20 < s < 90 else SLOW_THIRD.throughput(d))
    still = chain.runs(85)
    assert (still.division, still.why, still.trials) == (plain(3), optimiser.IDLE, [])
    assert chain.runs(120).why == optimiser.KEEPS
    assert len(chain.begun) == 2


def test_a_search_waits_until_the_chain_has_warmed_up() -> None:
    chain = Running(3, lambda s, d: SLOW_THIRD.throughput(d) * min(1.0, 0.3 + s / 40))
    chain.runs(200)
    assert len(chain.begun) == 1
    assert chain.begun[0] > 28


def test_a_shift_is_followed_by_another_search() -> None:
    """The third component was the bottleneck, and then the first is."""
    now_first = Chain((1000.0,) * 3, (80, 10, 40), crowd=0.1)
    chain = Running(3, lambda s, d: (SLOW_THIRD if s < 300 else now_first).throughput(d))
    before = chain.runs(290).found
    found = chain.runs(310).found
    assert before is not None
    assert found is not None
    assert (before.bottleneck, found.bottleneck) == (2, 0)
    assert len(chain.begun) == 2


def test_searches_in_vain_become_rare() -> None:
    """The throughput goes up and down every half minute whatever the division is."""
    chain = Running(2, lambda s, _: 1000.0 if int(s / 30) % 2 else 2000.0)
    chain.runs(4 * 3600)
    assert chain.optimiser.division == plain(2)
    assert len(chain.begun) < 20


@pytest.mark.parametrize(
    ("rate", "why"),
    [
        pytest.param(lambda _, __: 2.0, optimiser.IDLE, id="too few calls"),
        pytest.param(lambda _, __: 0.0, optimiser.IDLE, id="none"),
        pytest.param(
            lambda s, _: 1000.0 * (3 + sin(s / 3) + sin(s / 61)),
            optimiser.UNSTEADY,
            id="never the same",
        ),
    ],
)
def test_what_cannot_be_compared_stays_plain(rate: Callable[..., float], why: str) -> None:
    chain = Running(3, rate)
    found = chain.runs(1200)
    assert (found.division, found.why, chain.begun) == (plain(3), why, [])


@pytest.mark.parametrize(
    ("n", "why"), [(0, optimiser.FEW), (1, optimiser.FEW), (MOST_COMPONENTS + 1, optimiser.MANY)]
)
def test_too_few_or_many_components_stay_plain(n: int, why: str) -> None:
    found = Running(n, lambda *_: 1000.0).runs(60)
    assert (found.division, found.why, found.trials) == (plain(n), why, [])


def test_a_chain_of_long_steps_has_longer_trials() -> None:
    """Its last component submits 500 calls at once every 5 s."""
    bursts = Running(3, lambda s, _: 1000.0 if s % 5 == 0 else 0.0)
    trials = bursts.runs(600).trials
    assert len(trials) > 3
    assert {trial.throughput for trial in trials} == {100.0}


def test_calls_that_begin_anew_are_no_throughput() -> None:
    chain = Running(3, steady(SLOW_THIRD))
    chain.runs(3)
    chain.calls = 0.0
    chain.runs(0.5)
    assert all(one > 0 for one in chain.optimiser.recent)


def test_work_that_was_in_flight_at_a_change_does_not_count() -> None:
    """For more than a second after each change the chain does what it did before."""
    changed: list[tuple[float, tuple[int, ...]]] = [(0.0, plain(3))]

    def rate(s: float, division: tuple[int, ...]) -> float:
        if division != changed[-1][1]:
            changed.append((s, division))
        before = changed[-2][1] if len(changed) > 1 and s - changed[-1][0] < 1.2 else division
        return SLOW_THIRD.throughput(before)

    found = Running(3, rate).runs(120)
    for trial in found.trials:
        assert trial.throughput == pytest.approx(SLOW_THIRD.throughput(trial.division), rel=0.01)
