"""check: the metrics for Prometheus and the files for dcgm-exporter, where the site wants them."""

from __future__ import annotations

import contextlib
import http.client
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from leased.base import owners
from leased.cli.checks.finding import OK, WARNING, Finding, Site, finding
from leased.config.listen_address import ListenAddress
from leased.metrics import exporter, job_mapping

WAIT_S = 10.0
FOLLOWS_S = 6.0  # the files of a job are there so soon after its begin
UNIT = "gpu-leased-metrics"
START = f"run systemctl enable --now {UNIT}, and see its journal"
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
        words = f"you may not connect to {address} (metrics.listen)"
        yield Finding("metrics", WARNING, words, "run this check as root")
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


def of_job_mapping(site: Site) -> Iterator[Finding]:
    directory = site.config.metrics.job_mapping_dir
    if directory is None:
        words = "metrics.job_mapping_dir is empty: dcgm-exporter is told of no jobs"
        yield Finding("job-mapping", OK, words)
        return
    what = f"metrics.job_mapping_dir {directory}"
    try:
        there = directory.stat()
    except FileNotFoundError:
        yield Finding("job-mapping", WARNING, f"{what} does not exist", START)
        return
    if not stat.S_ISDIR(there.st_mode):
        words = f"{what} is not a directory"
        yield Finding("job-mapping", WARNING, words, "name another directory")
    elif owners.others(there, owners.TO_WRITE):
        words = f"others may write to {what}: {UNIT} writes nothing there"
        remedy = f"run chown root {directory}; chmod 755 {directory}"
        yield Finding("job-mapping", WARNING, words, remedy)
    elif there.st_mode & 0o005 != 0o005:
        words = f"{what} is not open to everybody: dcgm-exporter may not read it"
        yield Finding("job-mapping", WARNING, words, f"run chmod 755 {directory}")
    elif site.status is not None and job_mapping.wanted(site.status) and not _kept(directory):
        words = f"jobs share GPUs, and {UNIT} has written nothing to {what}"
        yield Finding("job-mapping", WARNING, words, START)
    else:
        yield Finding("job-mapping", OK, f"{what} is there")


def _kept(directory: Path) -> bool:
    """Whether the exporter's own list of its files is there, now or soon."""
    until = time.monotonic() + FOLLOWS_S
    while not (directory / job_mapping.OURS).exists():
        if time.monotonic() >= until:
            return False
        time.sleep(0.1)
    return True
