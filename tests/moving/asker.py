"""The process of the daemon's that asks the driver during a move."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.slurm.leased import Leased


def kill_the_asker(leased: Leased) -> None:
    """Of the daemon's children the one that asks the driver."""
    assert leased.daemon
    pid = leased.daemon.process.pid
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        if b"driver_child" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(int(child), signal.SIGKILL)
