"""Jobs on several nodes of the private Slurm."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.conftest import ROOT
from tests.slurm.ranks import Ranks, Row
from tests.slurm.several_nodes import SeveralNodes

OPTIONS = "lock:on,tq:200ms"  # turns of a few steps
# A step takes as long as one of four rounds over 64 MiB, and computes on a sixteenth of that.
STEPS = f"--bytes {4 << 20} --rounds 64"


@dataclass
class Gang(Ranks):
    """A job of the private Slurm."""

    cluster: SeveralNodes

    def file(self, rank: int, kind: str) -> Path:
        return self.cluster.work / f"{self.name}.{rank}.{kind}"

    @property
    def log(self) -> str:
        file = self.cluster.work / f"{self.name}.log"
        return file.read_text() if file.exists() else ""

    def end_state(self) -> str:
        return self.cluster.slurm.wait(self.number)

    def daemons_said(self) -> list[str]:
        return [site.leased.log.read_text()[-2000:] for site in self.cluster.sites]

    def trace(self, rank: int) -> list[Row]:
        return self.cluster.gpus[self.nodes[rank]].trace()


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
    return Gang(job, name, nodes[: ranks or len(nodes)], cluster)
