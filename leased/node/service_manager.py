"""What passes between the daemon and systemd: notifications, and the sockets that systemd keeps."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence

from systemd import daemon as sd

from leased.base import inherited

log = logging.getLogger("gpu-leased")


def notify(state: str, fds: Sequence[int] = ()) -> None:
    """Tell the service manager, if there is one, of a state. A failure is logged only."""
    try:
        sd.notify(state, fds=list(fds))
    except OSError as fault:
        log.warning("cannot notify the service manager: %s", fault)


def keep_connection(sock: socket.socket) -> None:
    """Have systemd keep the connection for the next daemon, until either end closes it."""
    notify("FDSTORE=1\nFDNAME=client", fds=[sock.fileno()])


def connections_kept() -> int:
    """How many connections systemd can keep."""
    return int(os.environ.get("FDSTORE", "0"))


def has_watchdog() -> bool:
    return int(os.environ.get("WATCHDOG_USEC", "0")) > 0


def inherited_sockets() -> dict[str, list[socket.socket]]:
    """What systemd hands over, by name: the sockets of the .socket units, and kept connections."""
    given: dict[str, list[socket.socket]] = {}
    for fd, name in inherited.descriptors().items():
        try:
            given.setdefault(name, []).append(socket.socket(fileno=fd))
        except OSError as fault:  # not one of ours
            log.error("what the service manager kept as %s is not a socket: %s", name, fault)
            os.close(fd)
    return given
