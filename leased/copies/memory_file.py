"""Host memory as a file without a name, which can be passed to a process of any user.

Its pages are allocated when it is made, and are charged to the process that makes it. It is sealed:
no process can shorten it under another's mapping, or make it longer than what was counted. The
kernel clears each page before its first use, so no process sees another's data.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import logging
import os
from dataclasses import dataclass

from leased.base.errors import Refused
from leased.copies.turns import SLICE, Slice
from leased.processes import procfs

log = logging.getLogger("gpu-leased")

LIBC = ctypes.CDLL(None, use_errno=True)
UNIT = 2 << 20  # a huge page; memory is made in whole ones
NAME = "gpu-lease"  # as /proc/PID/maps shows it
SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
HUGE_2MB = 21 << 26  # MFD_HUGE_2MB; no name in Python's os before 3.14
PUNCH_HOLE, KEEP_SIZE = 2, 1  # of fallocate(2)
# This part of the host's memory, or these bytes, always stay free.
HOST_KEEPS_PART, HOST_KEEPS = 32, 4 << 30


@dataclass(frozen=True)
class MemoryFile:
    """An open file of host memory. charged: all its pages were charged to this process's cgroup.
    user: for whom it was made; None: for one of a keeper before this one."""

    descriptor: int
    bytes: int
    huge: bool = False
    charged: bool = False
    user: int | None = None

    def end(self) -> None:
        """Free its pages now, even if a process still has it open or mapped."""
        all_of_it = PUNCH_HOLE | KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(self.bytes)
        if LIBC.fallocate(self.descriptor, *all_of_it):
            log.warning(
                "host memory of copies cannot be given back yet: %s",
                os.strerror(ctypes.get_errno()),
            )
        os.close(self.descriptor)


def make(size: int, huge: bool, turn: Slice) -> MemoryFile:
    """Make a file of so many bytes. Refused: the host has no memory for it.

    huge: of huge pages, where the site has reserved some and they suffice. turn: within it a slice
    is made.
    """
    if huge:
        try:
            return _made(size, os.MFD_HUGETLB | HUGE_2MB, turn)
        except OSError:
            pass  # no huge pages are left: use small ones
    try:
        return _made(size, 0, turn)
    except OSError as fault:
        raise Refused(f"the host gives no memory for copies: {fault.strerror}") from None


def _check_room(size: int) -> None:
    """Refused: so little memory would be left that the kernel could have to kill a process."""
    total, available = procfs.host_memory()
    if available - size < min(HOST_KEEPS, total // HOST_KEEPS_PART):
        raise Refused(
            f"the host has {available >> 20} MiB of memory left, but copies need {size >> 20} MiB",
            "lower limits.swap_host, or lower RealMemory in slurm.conf by as much",
        )


def _made(size: int, flags: int, turn: Slice) -> MemoryFile:
    huge = bool(flags & os.MFD_HUGETLB)
    flags |= os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    descriptor = os.memfd_create(NAME, flags)
    try:
        os.ftruncate(descriptor, size)
        for at in range(0, size, SLICE):
            part = min(SLICE, size - at)
            with turn(part):
                if not huge:
                    _check_room(size - at)
                os.posix_fallocate(descriptor, at, part)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except (OSError, Refused):
        os.close(descriptor)
        raise
    return MemoryFile(descriptor, size, huge, charged=not huge)


def of_descriptor(descriptor: int) -> MemoryFile:
    """The file of a descriptor, made before. OSError: the descriptor is of another kind."""
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS != SEALS:
        raise OSError(errno.EINVAL, "not sealed")
    found = os.fstat(descriptor)
    return MemoryFile(descriptor, found.st_size, found.st_blksize >= UNIT)
