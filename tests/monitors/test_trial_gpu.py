"""The daemon's own trial of turns, held against what the jobs themselves got done meanwhile."""

from __future__ import annotations

import json
import os
import re
from bisect import bisect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from leased.api.client import ask
from leased.monitors.trial import MARGIN
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED, Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP, line, tell

# At its end it says when each piece of its work was done.
BUSY = (
    SET_UP
    + """
import json, select, time
ok(spin(1000)); ok(d.cuCtxSynchronize()); say("runs")
done = []
while not select.select([sys.stdin], [], [], 0)[0]:
    WORK
    done.append(time.monotonic_ns())
print(json.dumps(done))
"""
)
# One kernel always waits behind the other: the device is never free for anybody else.
SATURATING = "ok(spin(4_000_000)); ok(spin(4_000_000)); ok(d.cuCtxSynchronize())"
# Half of the time on the CPU, in pieces shorter than a handoff is worth.
GAPS = "ok(spin(1_000_000)); ok(d.cuCtxSynchronize()); time.sleep(0.001)"
JOBS = (1, 2)
ANSWERS = re.compile(r"is being measured: (job .*)")
ANSWER = re.compile(r"job (\d+): \d+ calls at (\d+) ns")


@dataclass
class Measuring:
    """Two jobs of some work, and what the daemon measured of them.

    done: by job, when each piece of its work was done. asked: by job, when it answered the daemon:
    at the beginning and at the end of the time side by side, and of that by turns. All in ns of
    CLOCK_MONOTONIC.
    """

    status: dict[str, str]
    done: dict[int, list[int]]
    asked: dict[int, list[int]]

    @property
    def gain(self) -> float:
        """What the daemon says: the progress by turns against that side by side."""
        return float(self.status["why"].partition("; turns give ")[2].split()[0])

    def counted_gain(self) -> float:
        """The same by what the jobs did between their answers."""
        return sum(map(self._gain, JOBS)) / len(JOBS)

    def _gain(self, job: int) -> float:
        since, until, turns_since, turns_until = self.asked[job]
        return self._rate(job, turns_since, turns_until) / self._rate(job, since, until)

    def _rate(self, job: int, since: int, until: int) -> float:
        done = self.done[job]
        return (bisect(done, until) - bisect(done, since)) / (until - since)


@pytest.fixture
def leased(short_dir: Path, emulated_gpu: EmulatedGpu) -> Iterator[Leased]:
    """A daemon that says when it asked for progress."""
    env = os.environ | emulated_gpu.env
    with Leased(
        short_dir / "leased", short_dir / "run", env, preload=CHECKED, debug=True
    ) as daemon:
        yield daemon


def answers(leased: Leased) -> dict[int, list[int]]:
    """By job, when it has answered the daemon."""
    found: dict[int, list[int]] = {job: [] for job in JOBS}
    for words in ANSWERS.findall(leased.log.read_text()):
        for job, at in ANSWER.findall(words):
            found[int(job)].append(int(at))
    return found


@pytest.fixture
def measured(leased: Leased, tenant: Start) -> Callable[[str], Measuring]:
    """Run two jobs of some work until the daemon has measured them."""

    def device() -> dict[str, str]:
        found: dict[str, str] = ask(leased.admin_socket, {"op": "status"})["devices"][0]
        return found

    def run(work: str) -> Measuring:
        program = BUSY.replace("WORK", work)
        jobs = {n: tenant(n, "tq:1,lock:auto", "-c", program) for n in JOBS}
        for job in jobs.values():
            assert line(job) == "runs"
        wait_until("the measurement", lambda: device()["why"].startswith("measured:"))
        status, asked = device(), answers(leased)
        done = {}
        for number, job in jobs.items():
            tell(job)
            done[number] = json.loads(job.communicate(timeout=60)[0])
            assert job.returncode == 0
        return Measuring(status, done, asked)

    return run


@pytest.mark.parametrize("work", [SATURATING, GAPS], ids=["saturating", "with gaps"])
def test_real_jobs_are_measured_on_the_emulated_gpu(
    measured: Callable[[str], Measuring], work: str
) -> None:
    """The daemon's choice is right by what the jobs got done. Which of the two that is depends on
    the machine too: jobs whose processes wait for a processor leave the GPU gaps."""
    found = measured(work)
    assert {job: len(at) for job, at in found.asked.items()} == {1: 4, 2: 4}
    counted = found.counted_gain()
    assert 0.8 * counted <= found.gain <= 1.2 * counted, (found.status, found.asked, counted)
    better = "by turns" if found.gain > 1 + MARGIN else "side by side"
    assert f"measured: {better} is better" in found.status["why"]
    assert found.status["mode"] == {"by turns": "exclusive", "side by side": "shared"}[better]
