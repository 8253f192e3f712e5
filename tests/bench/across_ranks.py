"""What a node's jobs are to the daemon, without GPUs: a slurmstepd each, and one process that
speaks the wire, always wants its GPU and gives it back when it is told to.

`python -m tests.bench.across_ranks RUN_DIR LOGS GPUS TURN JOB=NODE,NODE...`: each job registers on
RUN_DIR/admin.sock with GPU number JOB % GPUS and `tq:TURN`. LOGS/JOB.NODE gets a row for each thing
that happens: what, when (ns of this machine's monotonic clock), and for how many ns the process had
no processor for it: before it heard of a lease or its end, and before it had given one back.
"""

from __future__ import annotations

import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import NamedTuple

from _gpulease import lib

from tests.bench.processor_waits import Delay
from tests.support.tenant import register
from tests.support.wire_client import WireClient, end_with_parent

STOPS_S = 0.0002  # that work needs to stop in mid-kernel
GRANTED, REVOKED, RELEASED = range(3)
ROW = struct.Struct("=QQQ")


class Job(NamedTuple):
    """gpu: its number here. nodes: if there are several."""

    number: int
    gpu: int
    nodes: list[str]


class Rank(WireClient):
    """One process of a job."""

    def __init__(self, path: Path, log: Path):
        super().__init__(path)
        self.log = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self.delay = Delay()

    def note(self, what: int, when: int = 0) -> None:
        """It has happened now, or then."""
        when = when or time.monotonic_ns()
        os.write(self.log, ROW.pack(what, when, self.delay.more()))

    def serve(self, sock: socket.socket) -> None:
        self.delay.more()
        super().serve(sock)

    def granted(self, _: socket.socket, epoch: int) -> None:
        if epoch != self.held:
            self.held = epoch
            self.note(GRANTED)

    def revoked(self, sock: socket.socket, epoch: int) -> None:
        if epoch != self.held:
            return
        self.note(REVOKED)
        time.sleep(STOPS_S)
        self.delay.more()
        released = time.monotonic_ns()
        self.release(sock, lib.GL_RELEASED_STOPPED)
        self.note(RELEASED, released)


def run_job(run_dir: Path, log: Path, options: str, job: Job) -> None:
    """This process is the job's slurmstepd from here on; its child is the rank."""
    end_with_parent()
    register(run_dir / "admin.sock", job.number, options, [job.gpu], nodes=job.nodes)
    if os.fork() == 0:
        end_with_parent()
        Rank(run_dir / "tenant.sock", log).run()
    os.write(1, b"there\n")
    signal.pause()


def main() -> None:
    end_with_parent()
    run_dir, logs, gpus = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    here, options = os.environ["SLURMD_NODENAME"], f"tq:{sys.argv[4]},lock:on"
    for text in sys.argv[5:]:
        number, nodes = text.split("=")
        several = nodes.split(",") if nodes else []
        job = Job(int(number), int(number) % gpus, several)
        if os.fork() == 0:
            run_job(run_dir, logs / f"{number}.{here}", options, job)
    signal.pause()


if __name__ == "__main__":
    main()
