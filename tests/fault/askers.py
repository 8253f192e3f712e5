"""Jobs that ask for the GPU for ever: a slurmstepd each, and one process that speaks the wire.

`python -m tests.fault.askers RUN_DIR COUNTS JOB...`: every job registers on
RUN_DIR/admin.sock, and its process asks on RUN_DIR/tenant.sock, holds what it is
granted for some milliseconds, gives it back and asks again; where the daemon goes
away it connects anew and says what it holds. COUNTS is a file of two numbers a
job, of 8 bytes each: how often it was granted, and how often it was refused.
"""

from __future__ import annotations

import mmap
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path

from tests.support.tenant import register
from tests.support.wire_client import WireClient, end_with_parent

OPTIONS = "tq:100ms,lock:on"
HOLD_S = 0.005
ENTRY = struct.Struct("=QQ")


class Asker(WireClient):
    """One process of a job. counts: where it notes its grants and refusals, at `place`."""

    def __init__(self, path: Path, counts: mmap.mmap, place: int):
        super().__init__(path)
        self.counts = counts
        self.place = place
        self.grants = self.refusals = 0

    def note(self) -> None:
        ENTRY.pack_into(self.counts, self.place * ENTRY.size, self.grants, self.refusals)

    def hello(self, sock: socket.socket) -> None:
        super().hello(sock)
        if self.held:
            self.give_back(sock)

    def granted(self, sock: socket.socket, epoch: int) -> None:
        self.grants += 1
        self.held = epoch
        self.note()
        self.give_back(sock)

    def refused(self, _: str) -> None:
        self.refusals += 1
        self.note()

    def give_back(self, sock: socket.socket) -> None:
        """After a while."""
        time.sleep(HOLD_S)
        self.release(sock)


def run_job(run_dir: Path, counts: mmap.mmap, place: int, job: int) -> None:
    """This process is the job's slurmstepd from here on; its child asks."""
    end_with_parent()
    register(run_dir / "admin.sock", job, OPTIONS)
    if os.fork() == 0:
        end_with_parent()
        Asker(run_dir / "tenant.sock", counts, place).run()
    signal.pause()


def main() -> None:
    end_with_parent()
    run_dir, jobs = Path(sys.argv[1]), [int(text) for text in sys.argv[3:]]
    with Path(sys.argv[2]).open("r+b") as file:
        counts = mmap.mmap(file.fileno(), ENTRY.size * len(jobs))
    for place, job in enumerate(jobs):
        if os.fork() == 0:
            run_job(run_dir, counts, place, job)
    signal.pause()


if __name__ == "__main__":
    main()
