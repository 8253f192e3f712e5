"""Processor time before others' for what a test starts, where a deadline of wall time that is not
the test's own runs: Slurm's grace between announcing a suspension and stopping a job.

Root alone may have that; anybody else's processes are left as they are. A kernel that groups
sessions (autogroup) weighs a session by its own niceness, and processes in it among themselves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

NICE = -15

# For programs that a test starts elsewhere: Slurm gives each job a session of its own.
PREFER_OWN_SESSION = f"""
try:
    with open("/proc/self/autogroup", "w") as file:
        file.write("{NICE}")
except OSError:
    pass
"""


@contextlib.contextmanager
def preferred_children() -> Iterator[None]:
    """What is started within goes before others, with all that it starts."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, NICE)
    try:
        yield
    finally:
        os.setpriority(os.PRIO_PROCESS, 0, before)


def prefer_sessions(pids: Iterable[int]) -> None:
    """The sessions of these processes go before others."""
    for pid in pids:
        with contextlib.suppress(OSError):
            Path(f"/proc/{pid}/autogroup").write_text(str(NICE))
