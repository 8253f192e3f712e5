"""Which user's share of the daemon's time a process uses while its job is not known.

By user namespaces (/etc/subuid) a user may have 65,536 numbers and more. So that they do not
come with as many shares of the daemon, a process in a user namespace that is not the daemon's
is counted as the user who made it.
"""

from __future__ import annotations

import fcntl
import functools
import os
import socket
import struct
from pathlib import Path

from leased.processes.identity import Peer, opener_runs

NOBODY = -1
ENDED = -2  # all connections together whose process has ended
NESTED_MOST = 33  # user namespaces inside each other: the kernel's limit
# Of <linux/nsfs.h>; Python has no names for them.
NS_GET_PARENT = 0xB702
NS_GET_OWNER_UID = 0xB704


def payer_of(sock: socket.socket, peer: Peer) -> int:
    """The user who is charged for a connection: a uid; below 0: ENDED, or see _owner_of()."""
    try:
        there = Path(f"/proc/{peer.pid}/ns/user").stat()
        same = os.path.samestat(there, _ours())
        payer = peer.uid if same else _owner_of(peer, _ours())
    except (FileNotFoundError, ProcessLookupError):
        return ENDED
    except OSError:
        return peer.uid  # a daemon that is not root's may not look
    # Another process may have the pid by now, whose user must not be charged.
    return ENDED if opener_runs(sock) is False else payer


@functools.cache
def _ours() -> os.stat_result:
    return Path("/proc/self/ns/user").stat()


def _owner_of(peer: Peer, ours: os.stat_result) -> int:
    """The user who made the outermost user namespace below ours that the process is in.

    If root made it, perhaps for many users, the namespace itself is charged: the negative number of
    its inode."""
    fd = os.open(f"/proc/{peer.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    try:
        for _ in range(NESTED_MOST):
            parent = fcntl.ioctl(fd, NS_GET_PARENT)  # fails above ours
            if os.path.samestat(os.fstat(parent), ours):
                os.close(parent)
                break
            os.close(fd)
            fd = parent
        (owner,) = struct.unpack("I", fcntl.ioctl(fd, NS_GET_OWNER_UID, bytes(4)))
        return int(owner) or -os.fstat(fd).st_ino
    finally:
        os.close(fd)
