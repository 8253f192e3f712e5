"""Jobs on several nodes, and what the emulated GPUs saw of them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT
from tests.slurm.processes import wait_until
from tests.slurm.several_nodes import SeveralNodes

OPTIONS = "lock:on,tq:200ms"  # turns of a few steps
# A step takes as long as one of four rounds over 64 MiB, and computes on a sixteenth of that.
STEPS = f"--bytes {4 << 20} --rounds 64"


@dataclass
class Gang:
    """A job whose ranks are a ring (tests/slurm/rank.py). number: Slurm's. nodes: by their places,
    those of its ranks."""

    cluster: SeveralNodes
    number: int
    name: str
    nodes: Sequence[int]

    def file(self, rank: int, kind: str) -> Path:
        return self.cluster.work / f"{self.name}.{rank}.{kind}"

    @property
    def log(self) -> str:
        file = self.cluster.work / f"{self.name}.log"
        return file.read_text() if file.exists() else ""

    def steps(self, rank: int) -> int:
        """How many the rank has done."""
        file = self.file(rank, "steps")
        return file.stat().st_size if file.exists() else 0

    def gets_on(self, more: int = 3) -> None:
        """Wait until all its ranks have done so many more steps. AssertionError: what they and the
        daemons say instead."""
        wanted = [self.steps(rank) + more for rank in range(len(self.nodes))]

        def on() -> bool:
            return all(self.steps(rank) >= least for rank, least in enumerate(wanted))

        try:
            wait_until(f"job {self.number} to get on", on)
        except TimeoutError as fault:
            said = [site.leased.log.read_text()[-2000:] for site in self.cluster.sites]
            raise AssertionError(f"{fault}: {self.log}{said}") from None

    def ends(self, *, quiet: bool = True) -> None:
        """Tell it to end, and wait for that. quiet: it has said nothing. AssertionError: not all of
        its ranks were right."""
        (self.cluster.work / f"{self.name}.end").touch()
        state = self.cluster.slurm.wait(self.number)
        done = [self.file(rank, "done").exists() for rank in range(len(self.nodes))]
        assert (state, all(done)) == ("COMPLETED", True), self.log
        assert not (quiet and self.log)

    def slices(self, rank: int) -> list[tuple[int, int]]:
        """When the rank computed, in ns of a clock that all nodes share here."""
        pid = int(self.file(rank, "pid").read_text())
        trace = self.cluster.gpus[self.nodes[rank]].trace()
        return [(start, end) for _, who, start, end in trace if who == pid]


def submit(
    cluster: SeveralNodes,
    name: str,
    *arguments: str,
    script: str = "srun $rank",
    nodes: Sequence[int] = (0, 1),
    ranks: int = 0,
) -> Gang:
    """script: of the job; $rank there is the program of a rank with its arguments, and $n0, $n1 are
    the nodes. ranks: how many the script starts, on the first of them; 0: one on each."""
    program = f"{sys.executable} -m tests.slurm.rank --folder {cluster.work} {STEPS} --name {name}"
    names = [cluster.names[n] for n in nodes]
    known = "".join(f"n{place}={node}; " for place, node in enumerate(names))
    job = cluster.slurm.sbatch(
        *(f"-N{len(nodes)}", f"-n{len(nodes)}", "-w", ",".join(names)),
        *("-o", f"{cluster.work}/{name}.log", "--gres=shard:1", f"--gpu-share={OPTIONS}"),
        *(*arguments, "--wrap", f"{known}rank='{program}'; {script}"),
        cwd=ROOT,
    )
    return Gang(cluster, job, name, nodes[: ranks or len(nodes)])


def halves(gangs: Sequence[Gang]) -> list[tuple[str, str, int]]:
    """Whose work overlaps that of another job on another node of its own, for how many ns."""
    work = {g.name: [merged(g.slices(rank)) for rank in range(len(g.nodes))] for g in gangs}
    found = []
    for gang in gangs:
        for other in gangs:
            ns = sum(
                overlap(work[gang.name][rank], work[other.name][there])
                for rank, node in enumerate(gang.nodes)
                for there, place in enumerate(other.nodes)
                if other is not gang and place != node and place in gang.nodes
            )
            found += [(gang.name, other.name, ns)] if ns else []
    return found


def merged(slices: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those that follow each other at once as one, in order of time."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(slices):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def overlap(one: list[tuple[int, int]], other: list[tuple[int, int]]) -> int:
    """For how many ns two ordered lists of times overlap."""
    total = at = 0
    for start, end in one:
        while at < len(other) and other[at][1] <= start:
            at += 1
        for begin, until in other[at:]:
            if begin >= end:
                break
            total += min(end, until) - max(start, begin)
    return total
