"""Which process a peer is: the kernel's word, never a message's."""

from __future__ import annotations

import errno
import fcntl
import os
import select
import socket
import struct
import termios
from dataclasses import dataclass
from pathlib import Path

from leased.processes import procfs
from leased.processes.procfs import PROC

LONGEST_ANCESTRY = 64
SO_PEERPIDFD = 77  # of Linux 6.5; Python has no name for it
CANNOT_TELL = (errno.ENOPROTOOPT, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
SO_PEERGROUPS = 59  # Linux 4.13; no name in Python's socket
LONGEST_OPTION = 1024  # bytes that getsockopt() takes


@dataclass(frozen=True)
class Peer:
    """The process at the other end of a socket, by the kernel's word."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()  # supplementary ones


@dataclass(frozen=True)
class ProcessId:
    """One process: the start time tells it from a later one with the same pid."""

    pid: int
    start: int


def peer_of(connection: socket.socket) -> Peer:
    """The process that opened the connection."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    pid, uid, gid = struct.unpack("iII", raw)
    return Peer(pid, uid, gid, groups_of(connection))


def groups_of(connection: socket.socket) -> tuple[int, ...]:
    """The supplementary groups of the process that opened the connection.

    Empty if there are more than Python can ask for (256): the process is not let in by them.
    """
    try:
        raw = connection.getsockopt(socket.SOL_SOCKET, SO_PEERGROUPS, LONGEST_OPTION)
    except OSError:
        return ()
    return tuple(gid for (gid,) in struct.iter_unpack("I", raw))


def unread_of(connection: socket.socket) -> int:
    """Bytes of memory that messages take which the peer has not read yet; 0: it has read all."""
    return int(struct.unpack("i", fcntl.ioctl(connection, termios.TIOCOUTQ, bytes(4)))[0])


def opener_runs(connection: socket.socket) -> bool | None:
    """Whether the process that opened the connection still runs.

    None: the kernel has no SO_PEERPIDFD, which is what tells.
    """
    try:
        pidfd = connection.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD)
    except OSError as fault:
        return None if fault.errno in CANNOT_TELL else False
    try:
        ended = select.poll()
        ended.register(pidfd, select.POLLIN)
        return not ended.poll(0)
    finally:
        os.close(pidfd)


def still_there(connection: socket.socket, process: ProcessId | None) -> bool:
    """Whether the process that opened the connection still runs.

    Then what /proc has said of its pid was about this process. process: the process that had the
    pid when the connection was accepted; it decides where the kernel cannot tell.
    """
    runs = opener_runs(connection)
    return runs if runs is not None else process is not None and alive(process)


def can_tell() -> bool:
    """Whether it can be looked at which processes run; not where no descriptors are left."""
    try:
        os.close(os.open(PROC / "self" / "stat", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno not in CANNOT_TELL
    return True


def process_id(pid: int, proc: Path = PROC) -> ProcessId | None:
    """The process that has this pid now, or None."""
    found = procfs.stat(pid, proc)
    return ProcessId(pid, found.start) if found else None


def alive(process: ProcessId, proc: Path = PROC) -> bool:
    """Whether the process still runs: same pid, same start time, no zombie.

    A process whose first thread has ended, while others go on, looks like a zombie.
    """
    found = procfs.stat(process.pid, proc)
    if found is None or found.start != process.start:
        return False
    return found.state != procfs.ZOMBIE or procfs.others_run(process.pid, proc)


def ancestors(pid: int, proc: Path = PROC) -> list[int]:
    """The process itself and its parents up to init.

    A parent may end while it is looked at, and another process may get its pid. So the parent of
    a child is read again after the parent itself has been read.
    """
    chain: list[int] = []
    seen, looks = procfs.stat(pid, proc), 0
    while pid > 1 and looks < LONGEST_ANCESTRY:
        looks += 1
        parent = procfs.stat(seen.parent, proc) if seen else None
        again = procfs.stat(pid, proc) if seen else None
        if seen and again and again.start == seen.start and again.parent != seen.parent:
            seen = again  # adopted by another
            continue
        chain.append(pid)
        if seen is None or again is None or again.start != seen.start:
            break
        pid, seen = seen.parent, parent
    return chain


@dataclass(frozen=True)
class Step:
    """A step of a job; name: a number, batch, extern or interactive, None where unknown."""

    job: int
    name: str | None
