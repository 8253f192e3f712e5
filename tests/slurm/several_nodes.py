"""A cluster of several nodes on this machine, each with its own gpu-leased and emulated GPU.

The nodes differ in what a job meets there: the daemon's sockets, the GPU, the environment. They
share the network and the processes, so a daemon knows its jobs by their slurmstepd alone.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import Machine, PrivateSlurm
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.slurm.site import Site
from tests.support.nodes import peers_conf
from tests.support.ports import free_port
from tests.support.work_dir import work_dir

CONTAIN = "PrologFlags=Contain"  # a step of Slurm's own begins on all nodes of a job with it


@dataclass
class SeveralNodes:
    """sites: by node, in Slurm's order."""

    slurm: PrivateSlurm
    work: Path
    sites: list[Site] = field(default_factory=list)
    gpus: list[EmulatedGpu] = field(default_factory=list)

    def fails(self, place: int) -> None:
        """A node dies with all that runs there, and Slurm learns of it."""
        node = self.names[place]
        self.sites[place].leased.kill()
        (slurmd,) = [d for d in self.slurm.daemons if d.name == f"slurmd-{node}"]
        self._signal(place, signal.SIGSTOP)  # so that none tells Slurm how another one has ended
        while self._signal(place, signal.SIGKILL):
            pass
        slurmd.process.wait()
        self.slurm.daemons.remove(slurmd)
        self.slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    def _signal(self, place: int, signum: int) -> bool:
        """Returns whether anything of the node has not ended."""
        there = self._processes(place)
        for pid in there:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signum)
        return bool(there)

    def _processes(self, place: int) -> list[int]:
        """Those of the node that have not ended: its daemons, and what they have begun."""
        own = f"EMUGPU_DIR={self.gpus[place].directory}\0".encode()
        found = []
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if own in environment.read_bytes():
                    found.append(int(environment.parent.name))
        return found

    def comes_back(self, place: int) -> None:
        """The node is there again: with ReturnToService=2 that is for Slurm to see."""
        node = self.names[place]
        self.sites[place].leased.start()
        self.slurm.start_slurmd(node)
        wait_until(f"{node} to be idle", lambda: self.slurm.node_state(node) == "idle")

    @property
    def names(self) -> list[str]:
        return self.slurm.layout.node_names


@contextmanager
def several_nodes(
    nodes: int = 2,
    *,
    gpus: int = 1,
    slurm_conf: Sequence[str] = (CONTAIN,),
    plugin_args: Sequence[str] = ("several_nodes=yes",),
    peers: bool = True,
    leased_conf: str = "",
    trace: bool = False,
    hurried: Sequence[str] = (),
) -> Iterator[SeveralNodes]:
    """gpus: of each node. peers: their daemons speak with each other. leased_conf: more of their
    configuration. trace: of the emulated GPUs, who computed when."""
    work = work_dir()
    work.chmod(0o755)
    with contextlib.ExitStack() as all_of_it:
        all_of_it.callback(shutil.rmtree, work, ignore_errors=True)
        emulated = [
            EmulatedGpu(work / f"gpu{n}", devices=gpus, node=n, trace=trace) for n in range(nodes)
        ]
        for gpu in emulated:
            all_of_it.enter_context(gpu)
        slurm = PrivateSlurm(
            work / "slurm",
            nodes=nodes,
            gpus=gpus,
            plugin_args=plugin_args,
            slurm_conf=slurm_conf,
            env={"LD_LIBRARY_PATH": emulated[0].env["LD_LIBRARY_PATH"]},
            machines=[
                Machine([f"admin_socket={work}/run{n}/admin.sock"], gpu.env)
                for n, gpu in enumerate(emulated)
            ],
        )
        all_of_it.enter_context(slurm)
        (work / "out").mkdir()
        (work / "out").chmod(0o777)
        made = SeveralNodes(slurm, work / "out", gpus=emulated)
        ports = {name: free_port() for name in made.names}
        for n, name in enumerate(made.names):
            conf = leased_conf + (
                peers_conf(ports, name, slurm.layout.munge_socket) if peers else ""
            )
            env = slurm.env | slurm.node_env(name)
            daemon = Leased(work / f"leased{n}", work / f"run{n}", env, conf, hurried=hurried)
            made.sites.append(Site(slurm, all_of_it.enter_context(daemon), made.work))
        yield made
