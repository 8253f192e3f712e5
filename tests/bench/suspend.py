"""What it costs to suspend a job: `make bench NAME=suspend` writes build/bench/suspend.json.

On a private Slurm (which needs root) with an emulated GPU a job of 150 of 256 MiB is suspended
and resumed again and again: as a batch script, as a step of srun, as three ranks, and by a job of
a higher QOS that preempts it. Each writes all its memory in every turn and looks at all of it in
the next, so a byte that was lost ends it. While it is suspended another job of 150 MiB works.
In one of ten cycles the daemon is killed and started again: by turns before the suspension and
while it lasts.

`off_s`: from `scontrol suspend` (of a preempted job: from when Slurm shows it as suspended) until
no more than a hundredth of the job's bytes is on the GPU; `kept`: cycles in which that had not
come when Slurm stopped the job, 2 s later; nobody else is asked to work then, as nobody would
fit beside it. `other_s`: from when Slurm has stopped the job until the other
one, whose memory had to come back, has done its work; `other_alone_s`: the same while the job
is parked; `preemptor_s`: from when the memory is off until the job that preempts has begun and
done a turn. `back_s`: from the resume to the job's next turn. `killed`: the same figures of the
cycles in which the daemon was killed. Distributions in seconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.bench import write
from tests.bench.suspend_site import EACH, HIGH, LOW, RANKS, PausingJob, Site, suspending_site
from tests.slurm.processes import wait_until

CYCLES = 25  # of each kind
KILLED = 10  # one cycle of so many
STEP_S = 0.02  # between looks
KINDS = {"batch": 0, "step": 1, "ranks": RANKS, "preempted": 0}


def distribution(found: list[float]) -> dict[str, float]:
    """Of so many seconds."""
    if not found:
        return {"n": 0}
    ordered = sorted(found)
    at = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
    shown = {name: ordered[min(len(ordered) - 1, int(p * len(ordered)))] for name, p in at.items()}
    return {"n": len(found)} | {name: round(value, 3) for name, value in shown.items()}


class Bench:
    """Suspends jobs and looks at what becomes of them and of the others."""

    def __init__(self, site: Site):
        self.site = site
        self.times: dict[str, list[float]] = defaultdict(list)
        self.killed: dict[str, list[float]] = defaultdict(list)
        self.kept = 0
        self.cycles = 0

    def run(self, kind: str) -> None:
        """All cycles of a kind; its job is compared in each turn and must end well."""
        place = LOW if kind == "preempted" else ()
        job = self.site.submit(kind, KINDS[kind], *place)
        job.gets_on()
        for _ in range(CYCLES):
            self.cycles += 1
            if kind == "preempted":
                self.preempt(job)
            else:
                self.suspend(job)
        self.site.finish(job)

    def into(self) -> dict[str, list[float]]:
        """Where the times of this cycle belong."""
        return self.times if self.cycles % KILLED else self.killed

    def restart(self, before: bool) -> None:
        """Kill the daemon in one of KILLED cycles: by turns before the suspension and in it."""
        if self.cycles % KILLED == 0 and before == (self.cycles % (2 * KILLED) == 0):
            self.site.leased.kill()
            self.site.leased.start()

    def suspend(self, job: PausingJob) -> None:
        self.restart(before=True)
        begin = time.monotonic()
        self.site.slurm.run("scontrol", "suspend", str(job.number))
        left = self.watch_leave(job, begin)
        wait_until("it to be stopped", job.is_stopped, step=STEP_S)
        self.restart(before=False)
        turns = job.turns()
        if left:  # else the other does not fit beside it
            self.into()["other_s"].append(self.site.other_works())
        assert job.turns() == turns, "a suspended job has worked"
        begin = time.monotonic()
        self.site.slurm.run("scontrol", "resume", str(job.number))
        job.gets_on()
        self.into()["back_s"].append(time.monotonic() - begin)

    def preempt(self, job: PausingJob) -> None:
        self.restart(before=True)
        high = self.site.submit(f"high-{self.cycles}", 0, *HIGH)
        wait_until("it to be preempted", lambda: self.site.is_suspended(job), step=STEP_S)
        left = self.watch_leave(job, time.monotonic())
        begin = time.monotonic()
        self.restart(before=False)
        if left:
            high.gets_on()
            self.into()["preemptor_s"].append(time.monotonic() - begin)
        else:
            self.site.slurm.run("scancel", str(high.number))
            job.gets_on()
            return
        begin = time.monotonic()
        self.site.finish(high)
        job.gets_on()
        self.into()["back_s"].append(time.monotonic() - begin)

    def watch_leave(self, job: PausingJob, begin: float) -> bool:
        """Until its memory has left, or it can leave no more (False)."""
        stopped = 0
        while self.site.share_on_gpu(job) > 0.01 and stopped < 2:
            stopped += job.is_stopped()  # it may have left between the two looks
            time.sleep(STEP_S)
        if stopped == 2:
            self.kept += 1
            return False
        self.into()["off_s"].append(time.monotonic() - begin)
        return True


def other_alone(site: Site) -> list[float]:
    """What the other job takes while the first is parked: its memory comes back likewise."""
    job = site.submit("parked", 0)
    found = []
    for _ in range(7):
        job.gets_on()
        job.pause(True)
        site.until_idle(job)
        ask(site.leased.run_dir / "tenant.sock", {"op": "park", "job_id": job.number})
        wait_until("it to leave", lambda: site.share_on_gpu(job) == 0, step=STEP_S)
        found.append(site.other_works())
        job.pause(False)
    site.finish(job)
    return found


def measure(work: Path) -> dict[str, Any]:
    with suspending_site(work) as site:
        alone = other_alone(site)
        bench = Bench(site)
        for kind in KINDS:
            if kind == "preempted":  # jobs that share nodes by preemption have no other beside them
                site.finish(site.other)
            bench.run(kind)
            print(f"{kind}: {json.dumps(bench.times)}", file=sys.stderr, flush=True)
    return {
        "gpu": "emulated (emu-h200-small)",
        "bytes": EACH * RANKS << 20,
        "cycles": bench.cycles,
        "jobs_lost": 0,  # finish() of each job has seen it end well, and compare all its memory
        "kept": bench.kept,
        **{name: distribution(found) for name, found in sorted(bench.times.items())},
        "other_alone_s": distribution(alone),
        "killed": {name: distribution(found) for name, found in sorted(bench.killed.items())},
    }


if __name__ == "__main__":
    print(json.dumps(write("suspend", measure), indent=1))
