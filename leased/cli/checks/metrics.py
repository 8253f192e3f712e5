"""check: the metrics for Prometheus, where the site wants them."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from pathlib import Path

from leased.cli.checks.finding import OK, WARNING, Finding, Site, finding
from leased.config.listen_address import ListenAddress
from leased.metrics import exporter

WAIT_S = 10.0
UNIT = "gpu-leased-metrics"
OURS = b"gpu_lease_up "
MOST_BYTES = 64 << 10  # ours says at the beginning that it is


def findings(site: Site) -> Iterator[Finding]:
    address = site.config.metrics.listen
    if address is None:
        yield Finding("metrics", OK, "metrics.listen is empty: no metrics are served to Prometheus")
        return
    if not exporter.has_library():
        words = f"{UNIT} cannot run: Python's {exporter.LIBRARY} is missing"
        yield Finding("metrics", WARNING, words, exporter.HAVE_IT)
        return
    try:
        ours = is_ours(address, WAIT_S)
    except PermissionError:
        yield Finding(
            "metrics",
            WARNING,
            f"you may not connect to {address} (metrics.listen)",
            "run this check as root",
        )
    except OSError as fault:
        words = f"nobody listens at {address} (metrics.listen): {fault.strerror or fault}"
        yield Finding("metrics", WARNING, words, f"run systemctl enable --now {UNIT}")
    else:
        words = f"what answers at {address} (metrics.listen) is not {UNIT}"
        remedy, good = "choose another port for metrics.listen", f"{UNIT} answers at {address}"
        yield finding("metrics", "" if ours else words, remedy, good)


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
