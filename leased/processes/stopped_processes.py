"""Tells whether a process can run: it cannot while it is stopped, or its cgroup is frozen.

Slurm suspends a job by one of the two, debuggers stop processes, container runtimes freeze them.
The kernel does not announce it, so it has to be looked for.
"""

from __future__ import annotations

import os
from pathlib import Path

from leased.processes import procfs
from leased.processes.identity import ProcessId
from leased.processes.procfs import PROC

CGROUPS = Path("/sys/fs/cgroup")
STOPPED, TRACED = "T", "t"
THREADS_MOST = 64  # that are looked at where those of a process may differ


def stands_still(pid: int, proc: Path = PROC, cgroups: Path = CGROUPS) -> bool:
    """Whether no thread of the process can run; False if that cannot be told."""
    seen = procfs.stat(pid, proc)
    if seen is None or seen.state in ("R", procfs.DEAD):
        return False
    return _threads_stopped(pid, seen, proc) or _frozen(pid, proc, cgroups)


def _threads_stopped(pid: int, seen: procfs.Stat, proc: Path) -> bool:
    """A debugger stops threads one by one; and the first thread may end before the others do."""
    if seen.state not in (TRACED, procfs.ZOMBIE):
        return seen.state == STOPPED
    states = {*(procfs.thread_states(pid, THREADS_MOST, proc) or ())} - {procfs.ZOMBIE}
    return bool(states) and states <= {STOPPED, TRACED}


def is_stopped(process: ProcessId) -> bool:
    """Whether the process is stopped by a signal, and is still the same one."""
    seen = procfs.stat(process.pid)
    if seen is None or seen.start != process.start or seen.state == TRACED:
        return False
    return _threads_stopped(process.pid, seen, PROC)


def _frozen(pid: int, proc: Path, cgroups: Path) -> bool:
    """Whether a cgroup of the process, or one above it, is frozen (cgroup v1 or v2)."""
    for place in procfs.cgroups(pid, proc) or ():
        if place.controllers == b"freezer":
            state = _read(cgroups / "freezer", place.path, "freezer.state")
            if state == b"FROZEN\n":
                return True
        elif place.controllers == b"":
            for mount in (cgroups, cgroups / "unified"):
                if b"frozen 1" in _read(mount, place.path, "cgroup.events").split(b"\n"):
                    return True
    return False


def _read(mount: Path, path: bytes, name: str) -> bytes:
    below = os.fsdecode(path.lstrip(b"/"))
    return procfs.whole(f"{mount}/{below}/{name}", procfs.LINE_MOST) or b""
