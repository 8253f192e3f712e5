"""Suspended jobs that do not go on (they are cancelled, requeued, or come to their time limit), and
jobs that are suspended again and again."""

from __future__ import annotations

import contextlib
import random
import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from leased.api.client import ask
from tests.slurm import test_suspend_gpu
from tests.slurm.processes import wait_until
from tests.slurm.test_suspend_gpu import PROGRAM, Site, started
from tests.slurm.turns import Job
from tests.support.work_dir import work_dir

BOTH = 140  # MiB of each job: two do not fit on the device
STORM = 12  # times that a job is suspended and resumed


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    work = work_dir()
    try:
        with contextlib.ExitStack() as stack:
            yield started(work, "linuxproc", stack, *InOrder.SAID_BY)
    finally:
        shutil.rmtree(work, ignore_errors=True)


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    words = f"n = {test_suspend_gpu.EACH} << 18"
    assert words in PROGRAM
    monkeypatch.setattr(test_suspend_gpu, "PROGRAM", PROGRAM.replace(words, f"n = {BOTH} << 18"))


def jobs(site: Site) -> list[int]:
    """Those that the daemon knows."""
    return [t["job_id"] for t in ask(site.leased.admin_socket, {"op": "status"})["tenants"]]


def state(site: Site, job: Job) -> str:
    return site.slurm.job(job.number)["JobState"]


class InOrder:
    """Suspends and resumes jobs, each request behind the one before.

    slurmd begins each in a thread of its own as it comes, and looks again and again whether the
    job's last one has ended: on a busy machine a resume overtakes the suspension before it, and
    then the job stands still although Slurm shows it as running.
    """

    # With 26.05 the message has its number too, and belongs to the network's; before, to debug2.
    SAID_BY = ("SlurmdDebug=debug2", "DebugFlags=Network")
    DONE = re.compile(r"Finish processing RPC\b.*\bREQUEST_SUSPEND_INT\b")

    def __init__(self, site: Site):
        self.log = site.slurm.layout.log / f"slurmd-{site.slurm.layout.node_names[0]}.out"
        self.asked = self._done()

    def _done(self) -> int:
        return len(self.DONE.findall(self.log.read_text()))

    def __call__(self, ask: Callable[[], object]) -> None:
        """ask: makes one request."""
        self.asked += 1
        ask()
        wait_until("slurmd to have done it", lambda: self._done() >= self.asked)


def check_daemon(site: Site) -> None:
    log = site.leased.log.read_text()
    assert "Traceback" not in log, log
    assert "is dropped" not in log, log


def suspend_whole(site: Site, job: Job) -> None:
    """All its memory leaves before Slurm stops it."""
    site.suspend(job)
    wait_until("its memory to leave", lambda: not any(site.tenant(job)["resident_bytes"].values()))
    site.grace.end()
    wait_until("it to be stopped", job.is_stopped)


@pytest.mark.long
def test_two_jobs_get_on_after_a_storm(site: Site) -> None:
    """Mostly Slurm's grace ends at once, so what it stops is at whatever it was just doing."""
    source = random.Random(7)
    site.grace.end()
    pair = [site.submit(f"storm-{n}", "swap") for n in range(2)]
    for job in pair:
        job.gets_on()
    in_order = InOrder(site)
    for n in range(STORM):
        job, other = source.sample(pair, 2)
        if n % 5 == 4:
            in_order(partial(suspend_whole, site, job))
            other.gets_on()
        else:
            in_order(partial(site.slurm.run, "scontrol", "suspend", str(job.number)))
        if n % 2:  # else it runs on at once
            wait_until("it to be stopped", job.is_stopped)
        in_order(partial(site.resume, job))
    for job in pair:
        job.gets_on()
    for job in pair:
        site.finish(job)
    wait_until("both to be gone", lambda: not jobs(site))
    check_daemon(site)


@pytest.mark.long
@pytest.mark.parametrize(
    ("whole", "how"),
    [
        *((whole, how) for whole in (True, False) for how in ("cancel", "requeue")),
        (True, "limit"),
    ],
)
def test_a_suspended_job_that_does_not_go_on_holds_nobody_up(
    site: Site, how: str, whole: bool
) -> None:
    """whole: its memory has left the GPU; else it is still there."""
    site.grace.end()
    name = f"{how}-{whole}"
    first = site.submit(f"first-{name}", "swap", 0, "--requeue")
    first.gets_on()
    second = site.submit(f"second-{name}", "swap")
    second.gets_on()
    if whole:
        suspend_whole(site, first)
        second.gets_on()
    else:
        site.slurm.run("scontrol", "suspend", str(first.number))
        wait_until("it to be stopped", first.is_stopped)
    if how == "cancel":
        site.slurm.run("scancel", str(first.number))
        assert site.slurm.wait(first.number) == "CANCELLED"
    elif how == "requeue":
        site.slurm.run("scontrol", "requeue", str(first.number))
        wait_until("it to be ended", lambda: state(site, first) == "PENDING")
    else:
        site.resume(first)  # Slurm reckons its end anew then
        site.slurm.run("scontrol", "update", f"JobId={first.number}", "EndTime=now+1")
        assert site.slurm.wait(first.number) == "TIMEOUT"
    second.gets_on()
    site.finish(second)
    if how == "requeue":
        site.slurm.run("scancel", str(first.number))
    wait_until("both to be gone", lambda: not jobs(site))
    check_daemon(site)
