"""Whose process a peer is: the kernel's word (credentials, cgroup, ancestry), never a message's."""

from __future__ import annotations

import errno
import os
import re
import select
import socket
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from leased import procfs
from leased.procfs import PROC

# What Slurm itself makes below the root of a hierarchy, where only root can:
#   v1  /slurm/uid_0/job_7/step_0; slurm_NODE where several slurmd share a host
#   v2  /system.slice/slurmstepd.scope/job_7/step_0/user/task_0, also NODE_slurmstepd.scope and
#       other slices; from Slurm 26.05 the job's SLUID stands there, without its number
# A user can make any name in a cgroup of their own (below a .service, a .scope or their step),
# so only the beginning of a path counts.
STEP_IN_CGROUP = re.compile(
    rb"(?P<place>/slurm(?:_[^/]+)?/uid_\d{1,10}/job_(?P<v1>\d{1,10})"
    rb"|(?!/user\.slice/)(?:/[^/]+\.slice)+/(?:[^/]+_)?slurmstepd\.scope"
    rb"/(?:job_(?P<v2>\d{1,10})|s[0-9A-HJKMNP-TV-Z]{13}))"
    rb"/step_(?P<step>[0-9a-z]{1,16})(?:/|\Z)"
)
# slurmstepd's own title: "slurmstepd: [7.batch]"; het jobs: "[7+1.0]".
STEP_IN_TITLE = re.compile(rb"slurmstepd: \[\d+(?:\+\d+)?\.([0-9a-z]+)")
LONGEST_ANCESTRY = 64
SO_PEERPIDFD = 77  # of Linux 6.5; Python has no name for it
CANNOT_TELL = (errno.ENOPROTOOPT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
SO_PEERGROUPS = 59  # Linux 4.13; no name in Python's socket
LONGEST_OPTION = 1024  # bytes that getsockopt() takes


@dataclass(frozen=True)
class Peer:
    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()  # supplementary ones


@dataclass(frozen=True)
class ProcessId:
    """A process for good: the start time tells it from a later one with its number."""

    pid: int
    start: int


def peer_of(connection: socket.socket) -> Peer:
    """The process that opened the connection."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, gid = struct.unpack("iII", raw)
    return Peer(pid, uid, gid, groups_of(connection))


def groups_of(connection: socket.socket) -> tuple[int, ...]:
    """The supplementary groups of the process that opened the connection.

    None where it has more than Python can ask for (256): it is not let in by them.
    """
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, LONGEST_OPTION)
    except OSError:
        return ()
    return tuple(gid for (gid,) in struct.iter_unpack("I", raw))


def still_there(connection: socket.socket, process: ProcessId | None) -> bool:
    """Whether the process that opened the connection runs still, so that what /proc has said of
    its number was said of it. process: who had the number when the connection was accepted;
    that decides where the kernel has no SO_PEERPIDFD."""
    try:
        pidfd = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as fault:
        if fault.errno not in CANNOT_TELL:
            return False  # it has ended
        return process is not None and alive(process)
    try:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        return not ended.poll(0)
    finally:
        os.close(pidfd)


def process_id(pid: int, proc: Path = PROC) -> ProcessId | None:
    """The process that has this number now, or None."""
    found = procfs.stat(pid, proc)
    return ProcessId(pid, found.start) if found else None


def alive(process: ProcessId, proc: Path = PROC) -> bool:
    """Whether it still runs: same number, same start, no zombie."""
    found = procfs.stat(process.pid, proc)
    return found is not None and found.start == process.start and found.state != "Z"


def ancestors(pid: int, proc: Path = PROC) -> list[int]:
    """The process itself and its parents up to init."""
    chain: list[int] = []
    while pid > 1 and len(chain) < LONGEST_ANCESTRY:
        chain.append(pid)
        found = procfs.stat(pid, proc)
        if found is None:
            break
        pid = found.parent
    return chain


@dataclass(frozen=True)
class Place:
    """Where Slurm put a process. cgroup: the job's; job: its number, None where a SLUID stands."""

    cgroup: bytes
    job: int | None
    step: str


@dataclass(frozen=True)
class Step:
    """A step of a job; name: a number, batch, extern or interactive, None where unknown."""

    job: int
    name: str | None


def place_of(pid: int, proc: Path = PROC) -> Place | None:
    """Where in Slurm's cgroups the process is; None where it is in none, or in several jobs'."""
    found = [STEP_IN_CGROUP.match(cgroup.path) for cgroup in procfs.cgroups(pid, proc) or ()]
    places = {
        m["place"]: Place(m["place"], int(m["v1"] or m["v2"] or 0) or None, m["step"].decode())
        for m in found
        if m
    }
    return places.popitem()[1] if len(places) == 1 else None


def job_of_cgroup(pid: int, proc: Path = PROC) -> int | None:
    """The job whose cgroup the process is in, where Slurm tracks by cgroup and names it so."""
    place = place_of(pid, proc)
    return place.job if place else None


Stepds = Mapping[int, tuple[ProcessId, int]]


def _stepds_above(pid: int, stepds: Stepds, proc: Path) -> Iterator[int]:
    for ancestor in ancestors(pid, proc):
        known = stepds.get(ancestor)
        if known is not None and alive(known[0], proc):
            yield ancestor


def _job_of_sluid(place: Place, stepds: Stepds, proc: Path) -> int | None:
    """A SLUID does not say the job's number; a slurmstepd in the same cgroup knows it."""
    for pid, (process, job) in stepds.items():
        beside = place_of(pid, proc)
        if beside is not None and beside.cgroup == place.cgroup and alive(process, proc):
            return job
    return None


def step_of(pid: int, stepds: Stepds, proc: Path = PROC) -> Step | None:
    """The job and step of a process: by its cgroup, else by descent from a registered slurmstepd.

    stepds: by pid, the slurmstepd as it registered and its job.
    """
    place = place_of(pid, proc)
    if place is not None and any(job == place.job for _, job in stepds.values()):
        assert place.job is not None
        return Step(place.job, place.step)
    for stepd in _stepds_above(pid, stepds, proc):
        return Step(stepds[stepd][1], place.step if place else _step_in_title(stepd, proc))
    if place is None:
        return None
    job = place.job or _job_of_sluid(place, stepds, proc)
    return Step(job, place.step) if job else None


def _step_in_title(stepd: int, proc: Path) -> str | None:
    title = STEP_IN_TITLE.match(procfs.command_line(stepd, proc) or b"")
    return title[1].decode() if title else None


def job_of(pid: int, stepds: Stepds, proc: Path = PROC) -> int | None:
    """The job of a process, see step_of."""
    step = step_of(pid, stepds, proc)
    return step.job if step else None
