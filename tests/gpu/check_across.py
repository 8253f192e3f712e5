"""Do jobs with a rank on each of two nodes take turns on both at once, and stay right?

`python -m tests.gpu.check_across [--only ring,ddp,p2p]` on a machine with two GPUs and munged, as
root: two daemons, each for one of the GPUs, as if they were two nodes (docs/across.md).

ring: ranks of the driver alone, which check each other's data in each step (tests/slurm/rank.py).
ddp: two PyTorch trainings (FRAMEWORK_PYTHON), a rank on each GPU, gradients summed by NCCL over
sockets, as between nodes; the weights must be those of a bare run. p2p: the same with NCCL's own
way between two GPUs of one host. Prints a line a check and a table; writes across.json in $OUT or
build/bench after each. Ends within LIMIT_S: what is not begun until then has not been run. Exit
status 1 if a check failed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import Job, finish_all, framework_python, on_gpu, python, stopping
from tests.slurm.leased import Leased
from tests.support import tenant
from tests.support.nodes import munged, peers_conf
from tests.support.ports import free_port
from tests.support.work_dir import work_dir

LIMIT_S = 165.0
NODES = ("a", "b")  # the GPU of each is the one of its place
OPTIONS = "lock:on,tq:{}"
LIMITS = '[limits]\nquantum_min = "100ms"\n'
HANDOFFS = 10  # of each job of the ring on each GPU
# NCCL between two nodes: neither memory of the other's GPU nor of the host.
AS_BETWEEN_NODES = {
    "NCCL_P2P_DISABLE": "1",
    "NCCL_SHM_DISABLE": "1",
    "NCCL_IB_DISABLE": "1",
    "NCCL_SOCKET_IFNAME": "lo",
}
STARTED = time.monotonic()


def left_s() -> float:
    """Of LIMIT_S. TimeoutError: nothing is left."""
    left = LIMIT_S - (time.monotonic() - STARTED)
    if left <= 0:
        raise TimeoutError(f"{LIMIT_S:g} s are over")
    return left


class TwoNodes:
    """The daemons, and jobs that have a rank with each."""

    def __init__(self, work: Path, daemons: Sequence[Leased]):
        self.work, self.daemons = work, daemons

    def start(
        self, job: int, options: str, rank: int, command: Sequence[str], env: Mapping[str, str]
    ) -> Job:
        """A rank of a job."""
        admin = self.daemons[rank].admin_socket
        wrapped = tenant.command(
            admin, job, options, *command, gpus=str(rank), nodes=",".join(NODES)
        )
        return Job.start(f"job {job}, rank {rank}", wrapped, on_gpu(rank) | dict(env), job)

    def handoffs(self, job: int) -> list[int]:
        """How often each of its GPUs has changed to the job, while it is there."""
        found = []
        for daemon in self.daemons:
            tenants = ask(daemon.admin_socket, {"op": "status"})["tenants"]
            of_job = [t["gpus"].values() for t in tenants if t["job_id"] == job]
            found.append(sum(used["handoffs"] for used in of_job[0]) if of_job else 0)
        return found

    def usage(self, job: int) -> list[dict[str, Any]]:
        """What the job had of its GPU on each node."""
        asked = {"op": "usage", "job_id": job}
        answers = [ask(daemon.admin_socket, asked)["usage"] for daemon in self.daemons]
        return [dict(next(iter(answer.values()))) for answer in answers]


@contextlib.contextmanager
def two_nodes() -> Iterator[TwoNodes]:
    """In a directory of their own."""
    work = work_dir()
    ports = {name: free_port() for name in NODES}
    try:
        with munged(work / "munge") as munge, contextlib.ExitStack() as stack:
            daemons = []
            for name in NODES:
                conf = LIMITS + peers_conf(ports, name, munge)
                env = os.environ | {"SLURMD_NODENAME": name}
                daemons.append(Leased(work / name, work / name / "run", env, conf))
                stack.enter_context(daemons[-1])
            yield TwoNodes(work, daemons)
    finally:
        shutil.rmtree(work, ignore_errors=True)


# -- ranks that check each other's data -------------------------------------------------


def check_ring(nodes: TwoNodes, quantum: str) -> Result:
    """Two jobs by turns until each has had enough of them on both GPUs."""
    jobs = [1, 2]
    ranks = [
        nodes.start(
            job,
            OPTIONS.format(quantum),
            rank,
            python(
                *("-m", "tests.slurm.rank", "--rounds", "4"),
                *("--folder", str(nodes.work), "--name", f"ring{job}"),
            ),
            {"RANK": str(rank), "WORLD_SIZE": "2"},
        )
        for job in jobs
        for rank in range(2)
    ]
    with stopping(*ranks):
        began = time.monotonic()
        until = began + min(40.0, left_s())
        had = {job: [0, 0] for job in jobs}
        while min(map(min, had.values())) < HANDOFFS and time.monotonic() < until:
            for each in ranks:
                each.check_running()
            time.sleep(0.1)
            had = {job: nodes.handoffs(job) for job in jobs}
        took = time.monotonic() - began
        for job in jobs:
            (nodes.work / f"ring{job}.0.end").touch()
        for each in ranks:
            try:
                each.process.wait(min(30.0, left_s()))
            except subprocess.TimeoutExpired:
                raise each.failed("did not end") from None
            if each.process.returncode:
                raise each.failed(f"failed ({each.process.returncode})")
    steps = {
        job: [(nodes.work / f"ring{job}.{rank}.steps").stat().st_size for rank in range(2)]
        for job in jobs
    }
    return {
        "good": min(map(min, had.values())) >= HANDOFFS,
        "summary": f"handoffs {had} in {took:.1f} s, {steps} steps, all data right",
        "steps": steps,
        "usage": {job: nodes.usage(job) for job in jobs},
    }


# -- trainings over NCCL ------------------------------------------------------------------


def trainings(
    nodes: TwoNodes, jobs: Sequence[int], options: str, steps: int, way: Mapping[str, str]
) -> list[Job]:
    """Their ranks. No options: they run bare."""
    started = []
    for job in jobs:
        port = str(free_port())
        for rank in range(2):
            command = framework_python(
                *("-m", "tests.gpu.ddp", "--rank", str(rank), "--port", port),
                *("--steps", str(steps), "--seconds", "4"),
            )
            if options:
                started.append(nodes.start(job, options, rank, command, way))
            else:
                named = f"bare, rank {rank}"
                started.append(Job.start(named, command, on_gpu(rank) | dict(way)))
    return started


def reports(ranks: Sequence[Job]) -> list[dict[str, Any]]:
    """What the first rank of each job printed; the others have ended well."""
    with stopping(*ranks):
        found = finish_all(ranks[::2], min(70.0, left_s()))
        for each in ranks[1::2]:
            if each.process.wait(min(20.0, left_s())):
                raise each.failed(f"failed ({each.process.returncode})")
    return found


def check_ddp(
    nodes: TwoNodes, quantum: str, steps: int, jobs: Sequence[int], way: Mapping[str, str]
) -> Result:
    """Two at once by turns, against one alone without a daemon."""
    if left_s() < 45:
        raise TimeoutError(f"too little of {LIMIT_S:g} s is left")
    alone = reports(trainings(nodes, [0], "", steps, way))[0]
    print(f"bare: {alone['steps_s']} steps/s", flush=True)
    both = reports(trainings(nodes, jobs, OPTIONS.format(quantum), steps, way))
    usage = {job: nodes.usage(job) for job in jobs}
    handoffs = {job: [used["handoffs"] for used in usage[job]] for job in jobs}
    equal = [report["digest"] == alone["digest"] for report in both]
    together = sum(report["steps_s"] for report in both)
    return {
        "good": all(equal) and min(map(min, handoffs.values())) >= 2,
        "summary": f"digests equal: {equal}, handoffs {handoffs}, "
        f"{together:.1f} steps/s together, {alone['steps_s']} alone",
        "bare": alone,
        "jobs": both,
        "usage": usage,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="ring,ddp,p2p")
    parser.add_argument("--quantum", default="500ms", help="of the trainings")
    parser.add_argument("--steps", type=int, default=400, help="of the trainings")
    chosen = parser.parse_args()
    with two_nodes() as nodes:
        checks = {
            "ring": partial(check_ring, nodes, "200ms"),
            "ddp": partial(
                check_ddp, nodes, chosen.quantum, chosen.steps, (3, 4), AS_BETWEEN_NODES
            ),
            "p2p": partial(check_ddp, nodes, chosen.quantum, chosen.steps, (5, 6), {}),
        }
        return run_checks("across", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
