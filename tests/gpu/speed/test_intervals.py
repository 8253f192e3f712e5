"""The ratio of two programs' times tells a difference from what processes and drift make."""

from __future__ import annotations

import random

import pytest

from tests.gpu.speed.intervals import Ratio, ratio_of

ROUNDS = 80


def times(
    scale: float, *, seed: int, spread: float = 0.02, processes: int = 3
) -> list[list[float]]:
    draw = random.Random(seed)
    return [[scale * draw.gauss(1, spread) for _ in range(ROUNDS)] for _ in range(processes)]


def test_programs_of_the_same_speed_are_within_a_percent() -> None:
    found = ratio_of(times(1, seed=1, spread=0.004), times(1, seed=2, spread=0.004))
    assert found.low < 1 < found.high
    assert found.verdict(1.01) == "within"


def test_a_slower_program_is_told_from_noise() -> None:
    found = ratio_of(times(1.05, seed=1), times(1, seed=2))
    assert found.low > 1.01
    assert found.verdict(1.01) == "slower"


def test_processes_that_differ_leave_it_open() -> None:
    own = [*times(1, seed=1, processes=2), *times(1.08, seed=2, processes=1)]
    found = ratio_of(own, times(1, seed=3))
    assert found.low < 1.01 < found.high
    assert found.verdict(1.01) == "unclear"


def test_drift_that_both_see_is_no_difference() -> None:
    drift = [1 + n / ROUNDS for n in range(ROUNDS)]
    own, bare = (
        [[time * drift[n] for n, time in enumerate(process)] for process in times(scale, seed=seed)]
        for scale, seed in ((1.0, 1), (1.0, 2))
    )
    found = ratio_of(own, bare)
    assert 0.97 < found.low < 1 < found.high < 1.03


def test_noise_of_some_segments_is_left_out() -> None:
    assert ratio_of([[3.0, 3.1, 50.0]], [[1.5, 1.55, 1.6]]).ratio == pytest.approx(2.0)
    assert ratio_of([[1.0, 1.0, 1.0, 1.8, 1.9]], [[1.0] * 5]).ratio == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("own", "other"),
    [([], [[1.0]]), ([[1.0]], []), ([[]], [[]]), ([[1.0, 1.0]], [[1.0]]), ([[1.0], []], [[1.0]])],
)
def test_runs_that_cannot_be_compared_are_refused(
    own: list[list[float]], other: list[list[float]]
) -> None:
    with pytest.raises(ValueError, match="as many segments"):
        ratio_of(own, other)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.99, 1.01, "within"), (1.011, 1.02, "slower"), (1.01, 1.02, "unclear")],
)
def test_a_verdict_is_about_the_whole_interval(low: float, high: float, verdict: str) -> None:
    assert Ratio(1.0, low, high).verdict(1.01) == verdict
