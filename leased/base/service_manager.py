"""What passes between our services and systemd: notifications, and what it hands over or keeps."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Sequence

from systemd import daemon as sd

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
    for fd, name in descriptors().items():
        try:
            given.setdefault(name, []).append(socket.socket(fileno=fd))
        except OSError as fault:  # not one of ours
            log.error("what the service manager kept as %s is not a socket: %s", name, fault)
            os.close(fd)
    return given


def descriptors() -> dict[int, str]:
    """The name of each, "unknown" where it has none. Programs started later do not see them.

    systemd-python names them itself from 235 on; EL 9 and Debian 11 have 234.
    """
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    found = sd.listen_fds(unset_environment=True)
    for variable in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"):
        os.environ.pop(variable, None)  # systemd-python has done so for C programs only
    return {
        fd: names[n] if n < len(names) and names[n] else "unknown" for n, fd in enumerate(found)
    }
