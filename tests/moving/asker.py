"""The processes of the daemon's that work for a move."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.slurm.leased import Leased
from tests.support.children import children_of


def _named(leased: Leased, name: bytes) -> list[int]:
    assert leased.daemon
    children = children_of(leased.daemon.process.pid)
    return [pid for pid in children if name in Path(f"/proc/{pid}/cmdline").read_bytes()]


def askers(leased: Leased) -> list[int]:
    """Of the daemon's children the one that asks the driver."""
    return _named(leased, b"driver_child")


def kill_the_asker(leased: Leased) -> None:
    for child in askers(leased):
        os.kill(child, signal.SIGKILL)


def carriers(leased: Leased) -> list[int]:
    """Those that copy memory from GPU to GPU."""
    return _named(leased, b"carrier_child")
