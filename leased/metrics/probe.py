"""Asks an endpoint for its metrics, to see whose it is."""

from __future__ import annotations

import contextlib
import http.client
import socket
from pathlib import Path

from leased.config.listen_address import ListenAddress

OURS = b"gpu_lease_up "
MOST_BYTES = 64 << 10  # ours says at the beginning that it is


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a UNIX socket."""

    def __init__(self, path: Path, wait_s: float):
        super().__init__("localhost", timeout=wait_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


def is_ours(address: ListenAddress, wait_s: float) -> bool:
    """Whether it is gpu-leased-metrics that answers there; another server is none.

    wait_s: for each step, seconds. OSError: nobody listens there, or not in time.
    """
    connection = (
        http.client.HTTPConnection(address.host, address.port, timeout=wait_s)
        if address.path is None
        else UnixConnection(address.path, wait_s)
    )
    with contextlib.closing(connection):
        connection.connect()
        try:
            connection.request("GET", "/metrics")
            return OURS in connection.getresponse().read(MOST_BYTES)
        except (OSError, http.client.HTTPException):
            return False
