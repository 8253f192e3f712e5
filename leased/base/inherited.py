"""Descriptors that the service manager hands over: sockets of units, and what it has kept."""

from __future__ import annotations

import os

from systemd import daemon as sd


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
