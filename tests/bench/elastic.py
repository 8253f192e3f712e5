"""What jobs with shares get of a GPU's time: `make bench NAME=elastic`, build/bench/elastic.json.

The real daemon, the emulated GPU, and programs that always have kernels of 4 ms to run, five ahead.

phases: KubeShare's Figure 6 (Yeh et al., HPDC 2020): A (request 0.3, limit 0.6) is alone, then B
(0.4, 0.6) comes, then C (0.3, 0.5), then C ends, then B. Of each job `got` is the time that the
GPU worked for it, by the GPU's own account of the process, as a part of the time that a second GPU
of the same kind worked meanwhile for the same program, which is alone there, without daemon and
interposer: so processor time that the machine has not falls on both, and what a handoff costs
nobody has. `leased` is its lease time by the daemon's account, as a part of the time that passed.
Both are the mean over the phase, without its first 18 seconds, in which `lock:auto` tries whether
jobs get more done by turns or side by side; `worst` is `got` in the window of ten
seconds in which it is farthest from `wants`, what KubeShare's rules give. max_error: how far that
is, at most. device_busy: the sum of `got`, in the phase of two or three jobs in which that is
least. alone_busy: the part of the time in which the second GPU worked.

loss_at_quantum: Figure 7. Two jobs with a request of 0.5 each, and how much less they get done
together than the program on the second GPU; with lock:on, since they would run side by side and
have no quanta else. alone: one job instead, which loses nothing to sharing.

As root all of this runs before what else the machine does (goes_first).
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.bench import write
from tests.emugpu.server import EmulatedGpu
from tests.gpu.jobs import Job, Sharing, python, stopping
from tests.slurm.leased import Leased
from tests.support.programs import SET_UP
from tests.support.together import zip_strict

KERNEL_NS, AHEAD = 4_000_000, 5
WINDOW_S, SETTLE_S = 10.0, 18.0
PHASE_S = 20.0
LOOK_S = 0.5
ROUNDS, ROUND_S = 3, 10.0
QUANTA = ("30ms", "100ms")
LIMITS = '[device]\nmemory = "200MiB"\n[limits]\nquantum_min = "10ms"\n'

GREEDY = (
    SET_UP
    + f"""
stream = ok(d.cuStreamCreate(1))
done = [ok(d.cuEventCreate(d.CUevent_flags.CU_EVENT_DISABLE_TIMING)) for _ in range({AHEAD})]
say(os.getpid())
say("ready")
sys.stdin.readline()
turn = 0
while True:
    event = done[turn % {AHEAD}]
    if turn >= {AHEAD}:
        ok(d.cuEventSynchronize(event))
    ok(spin({KERNEL_NS}, stream))
    ok(d.cuEventRecord(event, stream))
    turn += 1
"""
)


@dataclass(frozen=True)
class Asked:
    request: float
    limit: float

    @property
    def options(self) -> str:
        return f"request:{self.request:g},limit:{self.limit:g}"


JOBS = {"A": Asked(0.3, 0.6), "B": Asked(0.4, 0.6), "C": Asked(0.3, 0.5)}
PHASES: tuple[dict[str, float], ...] = (  # who is there, and what it should get
    {"A": 0.6},
    {"A": 0.5, "B": 0.5},
    {"A": 0.3, "B": 0.4, "C": 0.3},
    {"A": 0.5, "B": 0.5},
    {"A": 0.6},
)


@dataclass
class Look:
    """What the GPU has done so far, and the daemon has leased, in seconds. at: of a clock. alone:
    what the second GPU has done."""

    at: float
    alone: float
    busy: dict[str, float]
    leased: dict[str, float]


@dataclass
class Node:
    """The GPU, the daemon and programs on them. pids: of each program, by its name. other: the
    second GPU."""

    gpu: EmulatedGpu
    other: EmulatedGpu
    share: Sharing
    jobs: dict[str, Job] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)

    def start(self, name: str, options: str) -> None:
        """A job whose program is ready to begin."""
        job = self.share.tenant(name, options, python("-c", GREEDY), self.gpu.env)
        self.jobs[name] = job
        job.wait_ready()
        self.pids[name] = int(job.printed().split()[0])

    def end(self, name: str) -> None:
        job = self.jobs.pop(name)
        job.stop()
        ask(self.share.admin, {"op": "job_end", "job_id": job.number})

    def end_all(self) -> None:
        for name in list(self.jobs):
            self.end(name)

    def look(self) -> Look:
        alone = self.other.stats()["devices"][0]["busy_ns"] / 1e9
        busy = {row["pid"]: row["busy_ns"] / 1e9 for row in self.gpu.stats()["processes"]}
        at = time.monotonic()
        leased = {name: self.share.usage(job)["lease_s"] for name, job in self.jobs.items()}
        return Look(at, alone, {name: busy[self.pids[name]] for name in self.jobs}, leased)

    def watch(self, seconds: float) -> list[Look]:
        looks = [self.look()]
        while looks[-1].at < looks[0].at + seconds:
            time.sleep(LOOK_S)
            for job in self.jobs.values():
                job.check_running()
            looks.append(self.look())
        return looks


@contextmanager
def node(work: Path) -> Iterator[Node]:
    with (
        EmulatedGpu(work / "gpu") as gpu,
        EmulatedGpu(work / "other") as other,
        Leased(work / "leased", work / "run", os.environ | gpu.env, LIMITS) as leased,
    ):
        made = Node(gpu, other, Sharing(leased))
        alone = Job.start("alone", python("-c", GREEDY), other.env)
        with stopping(alone):
            alone.wait_ready()
            alone.go()
            try:
                yield made
            finally:
                made.end_all()


# -- Figure 6 ----------------------------------------------------------------------------


def got(begin: Look, end: Look) -> dict[str, float]:
    """What each got done between two looks, as a part of what the program alone did."""
    alone = end.alone - begin.alone
    return {name: (end.busy[name] - begin.busy.get(name, 0.0)) / alone for name in end.busy}


def windows(looks: Sequence[Look]) -> Iterator[dict[str, float]]:
    """What each had in each window of ten seconds."""
    for begin in looks:
        end = next((look for look in looks if look.at >= begin.at + WINDOW_S), None)
        if end is not None:
            yield got(begin, end)


def judged(looks: Sequence[Look], wants: Mapping[str, float]) -> dict[str, Any]:
    """One phase: of each job what it asked for, what it should get and what it got."""
    settled = [look for look in looks if look.at >= looks[0].at + SETTLE_S]
    first, last = settled[0], settled[-1]
    passed, mean, found = last.at - first.at, got(first, last), list(windows(settled))
    jobs = {}
    for name, want in wants.items():
        worst = max((window[name] for window in found), key=lambda part: abs(part - want))
        jobs[name] = {
            "request": JOBS[name].request,
            "limit": JOBS[name].limit,
            "wants": want,
            "got": round(mean[name], 4),
            "leased": round((last.leased[name] - first.leased[name]) / passed, 4),
            "worst": round(worst, 4),
        }
    return {
        "jobs": jobs,
        "device_busy": round(sum(mean.values()), 4),
        "alone_busy": round((last.alone - first.alone) / passed, 4),
    }


def three_jobs(made: Node) -> list[dict[str, Any]]:
    """Phase after phase."""
    phases = []
    for wants in PHASES:
        for name in [name for name in made.jobs if name not in wants]:
            made.end(name)
        for name in wants:
            if name not in made.jobs:
                made.start(name, JOBS[name].options)
                made.jobs[name].go()
        looks = made.watch(SETTLE_S + PHASE_S)
        phases.append(judged(looks, wants))
        print(f"{', '.join(wants)}: {phases[-1]}", flush=True)
    made.end_all()
    return phases


# -- Figure 7 ----------------------------------------------------------------------------


def throughput(made: Node, options: Sequence[str]) -> float:
    """What jobs with these options get done together, as a part of what the program alone does."""
    names = [str(number) for number, _ in enumerate(options)]
    for name, text in zip_strict(names, options):
        made.start(name, text)
    for name in names:
        made.jobs[name].go()
    looks = made.watch(1 + ROUND_S)
    settled = [look for look in looks if look.at >= looks[0].at + 1]
    found = got(settled[0], settled[-1])
    made.end_all()
    return sum(found.values())


def losses(made: Node) -> dict[str, Any]:
    cases = {"alone": ["lock:on"], **{q: [f"request:0.5,lock:on,tq:{q}"] * 2 for q in QUANTA}}
    found: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case, options in cases.items():
            found[case].append(round(throughput(made, options), 4))
        print({case: rates[-1] for case, rates in found.items()}, flush=True)
    return {
        "loss_at_quantum": {q: round(1 - statistics.mean(found[q]), 4) for q in QUANTA},
        "rounds": found,
    }


def go_first() -> bool:
    """What this measures does little on processors, and is late where others do much. Returns
    whether this process, and what it starts, may go before them."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except PermissionError:
        return False
    return True


def measure(work: Path) -> dict[str, Any]:
    first = go_first()
    with node(work) as made:
        phases = three_jobs(made)
        lost = losses(made)
    errors = [abs(job["worst"] - job["wants"]) for p in phases for job in p["jobs"].values()]
    shared = [phase["device_busy"] for phase in phases if len(phase["jobs"]) > 1]
    return {
        "phases": phases,
        "max_error": round(max(errors), 4),
        "device_busy": min(shared),
        **lost,
        "goes_first": first,
    }


def main() -> int:
    report = write("elastic", measure)
    print(f"error {report['max_error']}, GPU busy {report['device_busy']} at least")
    print(f"lost: {report['loss_at_quantum']}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
