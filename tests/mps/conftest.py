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
from tests.emugpu.mps_control import install

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
