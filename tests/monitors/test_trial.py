"""Trials of turns against side by side: the choice, its cost, and the real daemon's."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased.cli.ctl import ask
from leased.monitors.trial import (
    LONGEST_REST_NS,
    MARGIN,
    PATIENCE_NS,
    PHASE_NS,
    REST,
    TURN_NS,
    Ask,
    Beat,
    Mode,
    Sample,
    Trial,
)
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, tell

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

    def run(self, seconds: float) -> list[Mode]:
        """Pass so much time; returns the modes that were set."""
        modes, end = [], self.now + int(seconds * S)
        while self.now < end:
            self.now += BEAT
            factor = self.gain if self.mode.exclusive else 1.0
            for job, rate in self.rates.items():
                self.calls[job] = self.calls.get(job, 0.0) + rate * factor * BEAT / S
            if self.mode.why.startswith("being measured: by turns"):
                self.lost_ns += BEAT * max(0.0, 1 - self.gain)
            samples = {j: Sample(self.now, int(c)) for j, c in self.calls.items()}
            known = frozenset(self.rates)
            asked, self.asked = self.asked, False
            command = self.trial.beat(Beat(self.now, known, samples if asked else {}, known))
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
    assert f"by turns {gain:.2f} of the progress side by side" in jobs.mode.why


def test_who_comes_or_goes_makes_it_side_by_side_until_measured_again() -> None:
    jobs = Jobs({1: 450.0, 2: 450.0}, 1.14)
    jobs.run(20)
    assert jobs.mode.exclusive
    jobs.rates[3] = 100.0
    assert jobs.run(0.5) == [Mode(False, "")]
    jobs.run(600)
    assert jobs.mode.exclusive, "three are better by turns as well"


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


def test_who_comes_after_a_trial_that_lost_nothing_is_measured_at_once() -> None:
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


BUSY = (
    SET_UP
    + """
import select, time
ok(spin(1000)); ok(d.cuCtxSynchronize()); say("runs")
while not select.select([sys.stdin], [], [], 0)[0]:
    WORK
"""
)
# One kernel always waits behind the other: the device is never free for anybody else.
SATURATING = "ok(spin(4_000_000)); ok(spin(4_000_000)); ok(d.cuCtxSynchronize())"
# Half of the time on the CPU, in pieces shorter than a handoff is worth.
GAPS = "ok(spin(1_000_000)); ok(d.cuCtxSynchronize()); time.sleep(0.001)"


@dataclass
class Measuring:
    """Two jobs of some work, what the daemon measured of them, and until when.

    When a phase ended is seen by asking again and again: not before the one time and not after
    the other (ns, CLOCK_MONOTONIC).
    """

    status: dict[str, str]
    side_by_side_ends: tuple[int, int]
    by_turns_ends: tuple[int, int]

    @property
    def gain(self) -> float:
        """What the daemon says: the progress by turns against that side by side."""
        return float(self.status["why"].partition("; by turns ")[2].split()[0])

    def counted_gains(self, trace: list[tuple[int, int, int, int]]) -> list[float]:
        """The same from the emulated GPU's own record of who computed when, for the earliest and
        the latest ends that the phases may have had."""
        return [
            counted_gain(trace, (apart - PHASE_NS, apart), (turns - PHASE_NS, turns))
            for apart, turns in itertools.product(self.side_by_side_ends, self.by_turns_ends)
        ]


Window = tuple[int, int]


def counted_gain(
    trace: list[tuple[int, int, int, int]], side_by_side: Window, by_turns: Window
) -> float:
    pids = {pid for _, pid, _, _ in trace}
    gains = [worked(trace, pid, by_turns) / worked(trace, pid, side_by_side) for pid in pids]
    assert len(gains) == 2
    return sum(gains) / 2


def worked(trace: list[tuple[int, int, int, int]], pid: int, window: Window) -> float:
    """The part of the window in which the process computed."""
    begin, end = window
    cut = [(max(s, begin), min(e, end)) for _, p, s, e in trace if p == pid]
    return sum(e - s for s, e in cut if e > s) / (end - begin)


@pytest.fixture
def measured(leased: Leased, tenant: Start) -> Callable[[str], Measuring]:
    """Run two jobs of some work until the daemon has measured them."""

    def device() -> dict[str, str]:
        found: dict[str, str] = ask(leased.admin_socket, {"op": "status"})["devices"][0]
        return found

    def wait_why(words: str) -> tuple[int, int]:
        """When it was still something else, and when it was that."""
        asked = [time.monotonic_ns()]

        def is_so() -> bool:
            asked.append(time.monotonic_ns())
            return device()["why"].startswith(words)

        wait_until(words, is_so)
        return asked[-2], time.monotonic_ns()

    def run(work: str) -> Measuring:
        jobs = [tenant(n, "tq:1,lock:auto", "-c", BUSY.replace("WORK", work)) for n in (1, 2)]
        for job in jobs:
            assert line(job) == "runs"
        wait_why("being measured: side by side")
        turns = wait_why("being measured: by turns")
        end = wait_why("measured:")
        found = Measuring(device(), turns, end)
        for job in jobs:
            tell(job)
            job.communicate(timeout=60)
            assert job.returncode == 0
        return found

    return run


@pytest.mark.parametrize("work", [SATURATING, GAPS], ids=["saturating", "with gaps"])
def test_real_jobs_are_measured_on_the_emulated_gpu(
    measured: Callable[[str], Measuring], work: str, emulated_gpu: EmulatedGpu
) -> None:
    """The daemon's choice is right by what the GPU did. Which of the two that is depends on the
    machine too: jobs whose processes wait for a processor leave the GPU gaps."""
    found = measured(work)
    counted = found.counted_gains(emulated_gpu.trace())
    assert 0.8 * min(counted) <= found.gain <= 1.2 * max(counted), (found, counted)
    better = "by turns" if found.gain > 1 + MARGIN else "side by side"
    assert f"measured: {better} is better" in found.status["why"]
    assert found.status["mode"] == {"by turns": "exclusive", "side by side": "shared"}[better]
