"""An emulated control program, and the daemon's side of it."""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leased.mps.control import Control
from tests.conftest import marked
from tests.emugpu.mps_control import install
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased

UUID = "GPU-00000000-0000-0000-0000-000000000000"


@pytest.fixture
def program(short_dir: Path) -> Path:
    return install(short_dir)


@pytest.fixture
def control(program: Path, short_dir: Path) -> Iterator[Control]:
    """It is ended with the test, if it runs then."""
    made = Control(program, short_dir / "mps", UUID)
    yield made
    if made.pid() is not None:
        asyncio.run(made.quit())


@contextmanager
def open_pidfd(pid: int) -> Iterator[int]:
    """A descriptor that can be read once the process has ended."""
    end = os.pidfd_open(pid)
    try:
        yield end
    finally:
        os.close(end)


def kill(control: Control) -> None:
    """As a crash would end it: its socket and its pid file stay."""
    pid = control.pid()
    assert pid is not None
    with open_pidfd(pid) as end:
        os.kill(pid, signal.SIGKILL)
        select.select([end], [], [])


@pytest.fixture
def leased(
    short_dir: Path, emulated_gpu: EmulatedGpu, request: pytest.FixtureRequest
) -> Iterator[Leased]:
    """gpu-leased on a GPU that is shared by MPS; the mark `daemon`: what else Leased is told."""
    more = marked(request, "daemon")
    conf = f'mps_control = "{install(short_dir)}"\n[device]\nspace = "mps"\n'
    env = os.environ | emulated_gpu.env
    with Leased(short_dir / "leased", short_dir / "run", env, conf, **more) as daemon:
        yield daemon
        (pid,) = (int(file.read_text()) for file in short_dir.glob("run/mps/*/*.pid"))
    os.kill(pid, signal.SIGTERM)
