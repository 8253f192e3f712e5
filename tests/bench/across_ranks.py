"""What a node's jobs are to the daemon, without GPUs: a slurmstepd each, and one process that
speaks the wire, always wants its GPU and gives it back when it is told to.

`python -m tests.bench.across_ranks RUN_DIR LOGS GPUS JOB=NODE,NODE...`: each job registers on
RUN_DIR/admin.sock with GPU number JOB % GPUS. LOGS/JOB.NODE gets a row for each thing that happens:
what, when (ns of this machine's monotonic clock).
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from _gpulease import lib

from tests.support.tenant import register
from tests.support.wire_client import WireClient, end_with_parent

OPTIONS = "tq:50ms,lock:on"
STOPS_S = 0.0002  # that work needs to stop in mid-kernel
GRANTED, REVOKED, RELEASED = range(3)
ROW = struct.Struct("=QQ")

Row = tuple[int, int]


def rows(path: Path) -> Iterator[Row]:
    """What has been noted, without a row that is being written."""
    data = path.read_bytes() if path.exists() else b""
    yield from ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size])


class Rank(WireClient):
    """One process of a job."""

    def __init__(self, path: Path, log: Path):
        super().__init__(path)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(self, what: int) -> None:
        os.write(self.log, ROW.pack(what, time.monotonic_ns()))

    def granted(self, _: socket.socket, epoch: int) -> None:
        if epoch != self.held:
            self.held = epoch
            self.note(GRANTED)

    def revoked(self, sock: socket.socket, epoch: int) -> None:
        if epoch != self.held:
            return
        self.note(REVOKED)
        time.sleep(STOPS_S)
        self.note(RELEASED)
        self.release(sock, lib.GL_RELEASED_STOPPED)


def run_job(run_dir: Path, log: Path, gpus: int, job: int, nodes: list[str]) -> None:
    """This process is the job's slurmstepd from here on; its child is the rank."""
    end_with_parent()
    register(run_dir / "admin.sock", job, OPTIONS, [job % gpus], nodes=nodes)
    if os.fork() == 0:
        end_with_parent()
        Rank(run_dir / "tenant.sock", log).run()
    os.write(1, b"there\n")
    signal.pause()


def main() -> None:
    end_with_parent()
    run_dir, logs, gpus = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    here = os.environ["SLURMD_NODENAME"]
    for text in sys.argv[4:]:
        job, nodes = text.split("=")
        if os.fork() == 0:
            several = nodes.split(",") if nodes else []
            run_job(run_dir, logs / f"{job}.{here}", gpus, int(job), several)
    signal.pause()


if __name__ == "__main__":
    main()
