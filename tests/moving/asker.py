"""The process of the daemon's that asks the driver during a move."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.slurm.leased import Leased
from tests.support.children import children_of


def kill_the_asker(leased: Leased) -> None:
    """Of the daemon's children the one that asks the driver."""
    assert leased.daemon
    for child in children_of(leased.daemon.process.pid):
        if b"driver_child" in Path(f"/proc/{child}/cmdline").read_bytes():
            os.kill(child, signal.SIGKILL)
