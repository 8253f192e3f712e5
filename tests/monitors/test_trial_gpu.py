"""The daemon's own trial of turns, on an emulated GPU that records who computed when."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from leased.api.client import ask
from leased.monitors.trial import MARGIN, PHASE_NS
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, tell

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
