"""Whose process a peer is: the kernel's word (credentials, cgroup, ancestry), never a message's."""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

# cgroup v1: /slurm_node1/uid_0/job_7/step_0; v2: .../slurmstepd.scope/job_7/step_0/user/task_0.
JOB_IN_CGROUP = re.compile(r"/job_(\d+)(?:/|$)", re.MULTILINE)
LONGEST_ANCESTRY = 64


@dataclass(frozen=True)
class Peer:
    pid: int
    uid: int
    gid: int


@dataclass(frozen=True)
class ProcessId:
    """A process for good: the start time tells it from a later one with its number."""

    pid: int
    start: int


def peer_of(connection: socket.socket) -> Peer:
    """The process that opened the connection."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return Peer(*struct.unpack("iII", raw))


def _stat(pid: int, proc: Path) -> list[str] | None:
    """Fields of /proc/PID/stat from the third on; None when there is no such process."""
    try:
        # The name stands in parentheses and may contain anything, also these.
        return (proc / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def process_id(pid: int, proc: Path = Path("/proc")) -> ProcessId | None:
    """The process that has this number now, or None."""
    fields = _stat(pid, proc)
    return ProcessId(pid, int(fields[19])) if fields else None


def alive(process: ProcessId, proc: Path = Path("/proc")) -> bool:
    """Whether it still runs: same number, same start, no zombie."""
    fields = _stat(process.pid, proc)
    return fields is not None and int(fields[19]) == process.start and fields[0] != "Z"


def ancestors(pid: int, proc: Path = Path("/proc")) -> list[int]:
    """The process itself and its parents up to init."""
    chain: list[int] = []
    while pid > 1 and len(chain) < LONGEST_ANCESTRY:
        chain.append(pid)
        fields = _stat(pid, proc)
        if fields is None:
            break
        pid = int(fields[1])
    return chain


def job_of_cgroup(pid: int, proc: Path = Path("/proc")) -> int | None:
    """The job whose cgroup the process is in, where Slurm tracks by cgroup."""
    try:
        found = JOB_IN_CGROUP.search((proc / str(pid) / "cgroup").read_text())
    except OSError:
        return None
    return int(found[1]) if found else None


def job_of(
    pid: int, stepds: Mapping[int, tuple[ProcessId, int]], proc: Path = Path("/proc")
) -> int | None:
    """The job of a process: by its cgroup, else by descent from a registered slurmstepd.

    stepds: by pid, the slurmstepd as it registered and its job.
    """
    job = job_of_cgroup(pid, proc)
    if job is not None and any(known == job for _, known in stepds.values()):
        return job
    for ancestor in ancestors(pid, proc):
        known = stepds.get(ancestor)
        if known is not None and alive(known[0], proc):
            return known[1]
    return job
