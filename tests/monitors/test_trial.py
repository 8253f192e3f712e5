"""Trials of turns against side by side: the choice and its cost."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased.monitors.trial import (
    LONGEST_REST_NS,
    PATIENCE_NS,
    REST,
    TURN_NS,
    Ask,
    Beat,
    Mode,
    Sample,
    Trial,
)

S = 1_000_000_000
BEAT = S // 4


@dataclass
class Jobs:
    """Jobs on one device: calls per second of each side by side, and the gain by turns."""

    rates: dict[int, float]
    gain: float
    trial: Trial = field(default_factory=Trial)
    now: int = 0
    calls: dict[int, float] = field(default_factory=dict)
    mode: Mode = field(default_factory=lambda: Mode(False, ""))
    asked: bool = False
    lost_ns: float = 0.0  # by turns while those were tried, against side by side
    apart: bool = False  # the policy lets them take turns where the mode does not

    def run(self, seconds: float) -> list[Mode]:
        """Pass so much time; returns the modes that were set."""
        modes, end = [], self.now + int(seconds * S)
        while self.now < end:
            self.now += BEAT
            factor = self.gain if self.mode.exclusive or self.apart else 1.0
            for job, rate in self.rates.items():
                self.calls[job] = self.calls.get(job, 0.0) + rate * factor * BEAT / S
            if self.mode.why.startswith("being measured: by turns"):
                self.lost_ns += BEAT * max(0.0, 1 - self.gain)
            samples = {j: Sample(self.now, int(c)) for j, c in self.calls.items()}
            known = frozenset(self.rates)
            asked, self.asked = self.asked, False
            beside = not self.mode.exclusive and not self.apart
            beat = Beat(self.now, known, samples if asked else {}, known, beside)
            command = self.trial.beat(beat)
            if isinstance(command, Mode):
                self.mode = command
                modes.append(command)
            self.asked = isinstance(command, Ask)
        return modes


@pytest.mark.parametrize(("gain", "exclusive"), [(1.14, True), (0.5, False), (1.01, False)])
def test_the_better_way_is_found_and_kept(gain: float, exclusive: bool) -> None:
    jobs = Jobs({1: 450.0, 2: 900.0}, gain)
    jobs.run(20)
    # Nothing has to move: turns stay as short as they were tried, whatever the jobs' tq.
    assert (jobs.mode.exclusive, jobs.mode.quantum_ns) == (
        exclusive,
        TURN_NS if exclusive else None,
    )
    assert f"turns give {gain:.2f} of the progress side by side" in jobs.mode.why


def test_jobs_run_side_by_side_after_a_change_of_tenants_until_measured_again() -> None:
    jobs = Jobs({1: 450.0, 2: 450.0}, 1.14)
    jobs.run(20)
    assert jobs.mode.exclusive
    jobs.rates[3] = 100.0
    assert jobs.run(0.5) == [Mode(False, "")]
    jobs.run(600)
    assert jobs.mode.exclusive, "three are better by turns as well"


def test_nothing_is_concluded_from_jobs_that_take_turns_by_themselves() -> None:
    """Their policy may end side by side at any time, also while that is being measured."""
    jobs = Jobs({1: 450.0, 2: 450.0}, 1.14, apart=True)
    assert jobs.run(60) == []
    jobs.apart = False
    assert [mode.why for mode in jobs.run(2)] == ["being measured: side by side"]
    jobs.apart = True
    assert [mode.why.split(":")[0] for mode in jobs.run(3)] == ["not measured"]
    assert jobs.run(60) == []
    jobs.apart = False
    jobs.run(20)
    assert jobs.mode.exclusive


def test_a_trial_that_is_given_up_is_not_begun_again_at_once() -> None:
    jobs = Jobs({1: 450.0, 2: 450.0}, 1.14)
    jobs.run(20)
    jobs.apart = True
    modes = jobs.run(2000)
    assert modes[-1].exclusive
    assert sum(mode.exclusive for mode in modes) <= 2000 / (REST * 3) + 1


def test_one_busy_job_beside_idle_ones_is_left_alone() -> None:
    jobs = Jobs({1: 450.0, 2: 0.0, 3: 0.0}, 2.0)
    modes = jobs.run(300)
    assert modes
    assert not any(mode.exclusive for mode in modes)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1, 1000), min_size=1, max_size=9), st.floats(0.2, 3), st.integers(0, 9))
def test_trying_costs_little_however_often_jobs_change(
    rates: list[float], gain: float, changes: int
) -> None:
    jobs = Jobs(dict(enumerate(rates)), gain)
    for change in range(changes):
        jobs.run(7.3)
        if not jobs.rates.pop(change, 0.0):
            jobs.rates[change] = 5.0
    jobs.run(3600)
    # What the first trial loses is not waited for; a beat is the unit of all of it.
    assert jobs.lost_ns <= (PATIENCE_NS + 3 * S) + 1.1 * jobs.now / REST


def test_new_tenants_are_measured_at_once_after_a_trial_that_lost_nothing() -> None:
    """Turns were better, so trying them cost nobody anything, however long it took."""
    jobs = Jobs({1: 450.0, 2: 450.0}, 1.14)
    jobs.run(20)
    assert jobs.mode.exclusive
    jobs.rates = {3: 450.0, 4: 450.0}
    modes = jobs.run(10)
    assert [mode.why for mode in modes][-1] == "being measured: side by side"
    jobs.run(8)
    assert jobs.mode.exclusive


def test_after_a_trial_that_lost_something_others_wait_for_it() -> None:
    """By turns there was half the progress for about two seconds: a fiftieth is 50 s or more."""
    jobs = Jobs({1: 450.0, 2: 450.0}, 0.5)
    jobs.run(20)
    lost = jobs.lost_ns
    assert lost > S
    jobs.rates = {3: 450.0, 4: 450.0}
    assert not any(mode.why.startswith("being") for mode in jobs.run(40))
    modes = jobs.run(REST * lost / S)
    assert any(mode.why.startswith("being measured") for mode in modes)


def test_a_trial_that_is_broken_off_counts_as_what_it_can_have_lost() -> None:
    jobs = Jobs({1: 450.0, 2: 450.0}, 0.5)
    while not jobs.mode.exclusive:
        jobs.run(0.25)
    jobs.run(1)
    jobs.rates = {3: 450.0, 4: 450.0}
    assert not any(mode.why.startswith("being") for mode in jobs.run(20)), "a second at half"
    assert any(mode.why.startswith("being") for mode in jobs.run(20))


def test_rests_double_while_the_answer_stays() -> None:
    jobs = Jobs({1: 450.0, 2: 450.0}, 0.5)
    ends = []
    for _ in range(40_000):
        if any(mode.why.startswith("measured:") for mode in jobs.run(0.25)):
            ends.append(jobs.now)
    rests = [later - earlier for earlier, later in itertools.pairwise(ends)]
    assert len(rests) >= 4
    assert rests[1] >= 1.9 * rests[0]
    assert max(rests) <= LONGEST_REST_NS + 10 * S
