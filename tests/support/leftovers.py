"""Processes that outlive a run of the tests: found by a word in their environment, and ended.

A daemon is in a session of its own, so nothing ends it with the run when a worker of
pytest-xdist is killed, or when a second Ctrl-C breaks off the end of a fixture.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

MARK = "GPUL_TEST_RUN"
ENDING_S = 30.0  # for processes that have been told to end already


@dataclass(frozen=True)
class Leftover:
    pid: int
    command: str


def mark_this_run() -> None:
    """From now on whatever this process starts can be found; its workers have its mark."""
    os.environ[MARK] = uuid.uuid4().hex


def _has(pid: int, entry: bytes) -> bool:
    with contextlib.suppress(OSError):
        return entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def find(name: str, value: str) -> list[Leftover]:
    """The living processes with this variable in their environment, without this one."""
    entry = f"{name}={value}".encode()
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    found = []
    for pid in pids:
        if pid == os.getpid() or not _has(pid, entry):
            continue
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            found.append(Leftover(pid, b" ".join(words).decode(errors="replace").strip()))
    return found


def end_all() -> list[Leftover]:
    """SIGKILL for those that do not end by themselves at once; returns whom it hit."""
    end = time.monotonic() + ENDING_S
    while (left := find(MARK, os.environ[MARK])) and time.monotonic() < end:
        time.sleep(0.05)
    for process in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
    return left
