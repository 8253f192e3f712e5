"""Programs that a test starts and speaks with over pipes; none of them outlives the test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import CHECKED

Process = subprocess.Popen[str]


class Programs:
    """Starts programs on an emulated GPU, under the interposer."""

    def __init__(self, gpu: EmulatedGpu, env: Mapping[str, str]):
        self.env = os.environ | gpu.env | {"LD_PRELOAD": str(CHECKED)} | dict(env)
        self.started: list[Process] = []

    def start(self, *command: str, socket: Path | str) -> Process:
        """socket: where the program finds its daemon."""
        pipe = subprocess.PIPE
        env = self.env | {"GPU_LEASE_SOCKET": str(socket)}
        process = subprocess.Popen(
            command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
        )
        self.started.append(process)
        return process

    def end(self) -> None:
        """What they have not said yet is shown with a failure."""
        for process in self.started:
            process.kill()
            sys.stderr.write("".join(process.communicate()))


@contextmanager
def programs(gpu: EmulatedGpu, **env: str) -> Iterator[Programs]:
    """All of them are ended behind it. env: of the programs."""
    made = Programs(gpu, env)
    try:
        yield made
    finally:
        made.end()
