"""Components of chains for tests and benchmarks: processes that do what they are told."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType

from tests.emugpu.programs import line
from tests.emugpu.server import ROOT
from tests.slurm.leased import Leased
from tests.support import programs, tenant
from tests.support.children import children_of

SWAP = "tq:1,lock:on,memory:swap"
BUILT = ROOT / "build" / "meson" / "chain"
LIBRARY, COMPONENT = BUILT / "libgpulease-chain.so", BUILT / "gpu-lease-component"


def end_process(pid: int) -> None:
    """Kill it, and wait until it has ended."""
    end = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    select.select([end], [], [])
    os.close(end)


class Component:
    """A process of tests/chains/component.py, the only task of a step. n: how many buffers it has
    had."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process, self.n = process, 0
        assert line(process) == "ready"

    def tell(self, *words: object) -> None:
        """What it is to do, without its answer."""
        programs.tell(self.process, " ".join(map(str, words)))

    def __call__(self, *words: object) -> str:
        self.tell(*words)
        answer = line(self.process)
        self.n += words[0] in ("alloc", "get") and answer.isdigit()
        return answer

    def below(self, name: str) -> list[int]:
        """The processes of that program that its slurmstepd has."""
        children = children_of(self.process.pid)
        return [c for c in children if name in Path(f"/proc/{c}/comm").read_text()]

    def kill(self) -> None:
        """Kill the program, but not what stands for its slurmstepd."""
        (pid,) = self.below("python")
        end_process(pid)

    def kill_keeper(self) -> bool:
        """Whether it had started the chain's keeper, which is there no more."""
        found = self.below("gpu-lease-chain")
        for pid in found:
            end_process(pid)
        return bool(found)


class Components:
    """Starts components of jobs, and ends them with their keepers."""

    def __init__(self, leased: Leased) -> None:
        self.leased, self.library = leased, LIBRARY
        self.started: list[Component] = []

    def __call__(self, *arguments: int, job: int = 1, options: str = SWAP) -> Component:
        program = sys.executable, "-m", "tests.chains.component", *map(str, arguments)
        process = subprocess.Popen(
            tenant.command(self.leased.admin_socket, job, options, *program, stays=True),
            cwd=ROOT,
            env=self.leased.env | {"GPU_LEASE_CHAIN_LIBRARY": str(self.library)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(Component(process))
        return self.started[-1]

    def __enter__(self) -> Components:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        for component in self.started:
            tenant.end_job(component.process)
