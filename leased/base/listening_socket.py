"""The sockets that the daemon makes itself where no service manager gives it any."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

# Who is not yet accepted, of users: those of one process that connects without end stand before
# everybody else's. Further processes wait in connect(), each for its turn.
BACKLOG = 64
ADMIN_BACKLOG = 512  # of root's, who waits for no turn in connect()


def listen(path: Path, mode: int, backlog: int = BACKLOG) -> socket.socket:
    """A listening SEQPACKET socket at `path`, in place of what a previous daemon left there.

    SOCK_SEQPACKET keeps messages whole. mode: of the file, which says who may connect.
    OSError: the folder of `path` cannot be written.
    """
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    made.setblocking(False)
    old = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(old)
    path.chmod(mode)
    made.listen(backlog)
    return made
