"""Programs of several frameworks in a storm: does each compute what it does when it is bare?

`python -m tests.gpu.check_chaos [--seed N] [--programs torch_eager,...]` on a machine with a GPU,
as root. The programs run bare at first. Then they run as jobs, all at once, with default options
and with gpu-leased-copies, on a device that holds two of them. Meanwhile, in an order drawn from
the seed: daemon and keeper are killed, jobs parked, processes stopped, the device's lock changed.
Results are to be equal, and no program may fail. Prints a line a blow; writes chaos-GPU.json in
$OUT or build/bench. Exit status 1 if a result differs. On the emulated GPU:
`--programs driver,driver,driver --cap 0.25 --ballast 96`.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leased.api.client import ask
from leased.base.errors import Refused
from tests.copies.keeper import Keeper
from tests.gpu import commands
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import Job, Sharing, finish_all, on_gpu, python, sharing, stopping
from tests.gpu.speed.placing import group_processes
from tests.slurm.leased import Leased
from tests.support.together import zip_strict

BALLAST_MIB = 3584  # of each program, besides what it computes with
CAP_GIB = 10.0
OPTIONS = "tq:300ms"
# Steps before the digest, for some ten seconds alone.
STEPS = {"torch_eager": 9000, "torch_graph": 36000, "torch_expandable": 9000}
STEPS |= {"cupy_math": 16000, "torch_async": 9000, "jax_train": 120000}
DRIVER_STEPS = 2000
BETWEEN_S = (0.2, 1.5)
DOWN_S = 1.0
STOPPED_S = 3.0
LONGEST_S = 400.0


@dataclass
class Storm:
    """What is done to the jobs, their daemon and its keeper."""

    share: Sharing
    jobs: Sequence[Job]
    gpu: int
    rng: random.Random
    began: float = field(default_factory=time.monotonic)
    counts: Counter[str] = field(default_factory=Counter)

    def some_job(self) -> Job:
        return self.rng.choice([job for job in self.jobs if job.process.poll() is None])

    def ask(self, **request: Any) -> None:
        """A job that ends meanwhile is refused, which is no fault."""
        with suppress(Refused):
            ask(self.share.admin, request)

    def kill_daemon(self) -> str:
        return self._kill(self.share.leased)

    def kill_keeper(self) -> str:
        assert self.share.keeper is not None
        return self._kill(self.share.keeper)

    def _kill(self, service: Leased | Keeper) -> str:
        """Start it again after a while."""
        down = self.rng.uniform(0, DOWN_S)
        service.kill()
        time.sleep(down)
        service.start()
        return f"for {down:.2f} s"

    def park(self) -> str:
        job = self.some_job()
        self.ask(op="park", job_id=job.number)
        return job.name

    def unpark(self) -> str:
        job = self.some_job()
        self.ask(op="unpark", job_id=job.number)
        return job.name

    def stop(self) -> str:
        """All processes of a job, as a debugger or a frozen cgroup does."""
        job = self.some_job()
        stopped = list(group_processes(job.process.pid))
        seconds = self.rng.uniform(0, STOPPED_S)
        for number in (signal.SIGSTOP, signal.SIGCONT):
            for pid in stopped:
                with suppress(ProcessLookupError):
                    os.kill(pid, number)
            if number == signal.SIGSTOP:
                time.sleep(seconds)
        return f"{job.name} for {seconds:.2f} s"

    def set_lock(self) -> str:
        lock = self.rng.choice(("on", "auto", "auto", "off"))
        self.ask(op="set", device=str(self.gpu), lock=lock)
        return lock

    def blow(self) -> None:
        kinds: Sequence[Callable[[], str]] = (
            *(self.kill_daemon, self.kill_keeper, self.park, self.park),
            *(self.unpark, self.stop, self.stop, self.set_lock),
        )
        kind = self.rng.choice(kinds)
        at = time.monotonic() - self.began
        print(f"{at:6.1f} {kind.__name__} {kind()}", flush=True)
        self.counts[kind.__name__] += 1

    def rage(self) -> None:
        """Until all jobs have ended. JobFailed: one has not after a long time."""
        while any(job.process.poll() is None for job in self.jobs):
            if time.monotonic() - self.began > LONGEST_S:
                raise self.some_job().failed(f"has not ended after {LONGEST_S:g} s")
            self.blow()
            time.sleep(self.rng.uniform(*BETWEEN_S))


def command(name: str, ballast: int) -> list[str]:
    """A program of workloads.py, or with the name driver one of the driver alone."""
    if name == "driver":
        return python("-m", "tests.gpu.driver_loop", str(DRIVER_STEPS), str(ballast))
    return commands.workload(name, 0, STEPS[name], ballast=ballast)


def run_bare(names: Sequence[str], chosen: argparse.Namespace) -> dict[str, str]:
    """The digest of each."""
    env = on_gpu(chosen.gpu) | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.05"}
    jobs = [Job.start(f"{name}, bare", command(name, chosen.ballast), env) for name in names]
    results = finish_all(jobs, LONGEST_S)
    return {name: result["digest"] for name, result in zip_strict(names, results)}


def differing(
    names: Sequence[str], results: Sequence[Mapping[str, Any]], bare: Mapping[str, str]
) -> list[str]:
    pairs = zip_strict(names, results)
    return [name for name, result in pairs if result["digest"] != bare[name]]


def known(share: Sharing, job: Job) -> bool:
    tenants = ask(share.admin, {"op": "status"})["tenants"]
    return any(tenant["job_id"] == job.number for tenant in tenants)


def start(share: Sharing, names: Sequence[str], chosen: argparse.Namespace) -> list[Job]:
    env = on_gpu(chosen.gpu) | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.85"}
    lines = {name: command(name, chosen.ballast) for name in names}
    jobs = [share.tenant(name, OPTIONS, lines[name], env, str(chosen.gpu)) for name in names]
    for job in jobs:
        while not known(share, job):  # a job that begins while the daemon is down is refused
            job.check_running()
            time.sleep(0.01)
    return jobs


def check_storm(chosen: argparse.Namespace) -> Result:
    names = chosen.programs.split(",")
    bare = run_bare(names, chosen)
    print(f"seed {chosen.seed}", flush=True)
    with sharing(f"{chosen.cap:g}GiB", copies=True) as share:
        jobs = start(share, names, chosen)
        with stopping(*jobs):
            storm = Storm(share, jobs, chosen.gpu, random.Random(chosen.seed))
            storm.rage()
            results = finish_all(jobs)
        usage = [share.usage(job) for job in jobs]
    wrong = differing(names, results, bare)
    moved = sum(used["moved_bytes"] for used in usage) / (1 << 30)
    return {
        "good": not wrong,
        "summary": f"seed {chosen.seed}: {', '.join(wrong) or 'no result'} differs; "
        f"{dict(storm.counts)}; handoffs {[used['handoffs'] for used in usage]}, "
        f"{moved:.0f} GiB moved",
        "seed": chosen.seed,
        "blows": dict(storm.counts),
        "usage": usage,
        "jobs": results,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--programs", default=",".join(STEPS))
    parser.add_argument("--cap", type=float, default=CAP_GIB, help="GiB of the device")
    parser.add_argument("--ballast", type=int, default=BALLAST_MIB, help="MiB of each program")
    parser.add_argument("--gpu", type=int, default=0, help="index")
    chosen = parser.parse_args()
    return run_checks(f"chaos-{chosen.gpu}", {"storm": partial(check_storm, chosen)}, ["storm"])


if __name__ == "__main__":
    raise SystemExit(main())
