"""TCP ports of the loopback interface for the daemons of a test, which take them later."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from pathlib import Path

FIRST_PORT = 10_000
WORKERS_MOST = 16  # of one run that draw from parts of their own

_drawn: set[int] = set()


def free_port() -> int:
    """A port that nothing has now, and that no other test of the run is given.

    None that the kernel would give to an outgoing connection: such a port could be
    taken before the daemon that it is for has started.
    """
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    mine = range(FIRST_PORT + _worker(), lowest, WORKERS_MOST)
    while True:
        port = random.choice(mine)
        with socket.socket() as probe, contextlib.suppress(OSError):
            if port not in _drawn:
                probe.bind(("127.0.0.1", port))
                _drawn.add(port)
                return port


def _worker() -> int:
    """The number of this process among the run's workers."""
    name = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
    return int(name.removeprefix("gw")) % WORKERS_MOST
