"""Jobs that ask for the GPU for ever: a slurmstepd each, and one process that speaks the wire.

`python -m tests.fault.askers RUN_DIR COUNTS JOB...`: every job registers on
RUN_DIR/admin.sock, and its process asks on RUN_DIR/tenant.sock, holds what it is
granted for some milliseconds, gives it back and asks again; where the daemon goes
away it connects anew and says what it holds. COUNTS is a file of two numbers a
job, of 8 bytes each: how often it was granted, and how often it was refused.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path

from _gpulease import ffi, lib

from tests.support.tenant import register

OPTIONS = "tq:100ms,lock:on"
HOLD_S = 0.005
AGAIN_S = 0.05
PR_SET_PDEATHSIG = 1
ENTRY = struct.Struct("=QQ")


def message(kind: int, name: str = "gl_header", **values: int) -> bytes:
    """A client's message as bytes."""
    made = ffi.new(f"struct {name} *")
    header = made if name == "gl_header" else made.header
    header.magic, header.version = lib.GL_MAGIC, lib.GL_VERSION
    header.type, header.length = kind, ffi.sizeof(f"struct {name}")
    for key, value in values.items():
        setattr(made, key, value)
    return bytes(ffi.buffer(made))


class Asker:
    """One process of a job. counts: where it notes its grants and refusals, at `place`."""

    def __init__(self, path: Path, counts: mmap.mmap, place: int):
        self.path = path
        self.counts = counts
        self.place = place
        self.granted = self.refused = 0
        self.held = 0  # epoch

    def note(self) -> None:
        ENTRY.pack_into(self.counts, self.place * ENTRY.size, self.granted, self.refused)

    def ask_for_ever(self) -> None:
        while True:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                    sock.connect(str(self.path))
                    self.ask(sock)
            except OSError:
                pass
            time.sleep(AGAIN_S)  # as the interposer pauses before it connects again

    def ask(self, sock: socket.socket) -> None:
        """On one connection, until it ends."""
        hello = {"held_epoch": self.held, "flags": 0 if self.held else lib.GL_HELLO_WANTS}
        sock.send(message(lib.GL_HELLO, "gl_hello", **hello))
        if self.held:
            self.give_back(sock)
        while data := sock.recv(lib.GL_MAX_MESSAGE):
            header = ffi.from_buffer("struct gl_header *", data)
            if header.type == lib.GL_GRANT:
                self.granted += 1
                self.held = int(ffi.from_buffer("struct gl_grant *", data).epoch)
                self.note()
                self.give_back(sock)
            elif header.type == lib.GL_REFUSED:
                self.refused += 1
                self.note()
            elif header.type == lib.GL_RESYNC:
                sock.send(message(lib.GL_HELLO, "gl_hello", flags=lib.GL_HELLO_WANTS))

    def give_back(self, sock: socket.socket) -> None:
        """After a while, and ask again in the same breath."""
        time.sleep(HOLD_S)
        released, self.held = self.held, 0
        sock.send(
            message(
                *(lib.GL_RELEASED, "gl_released"),
                epoch=released,
                flags=lib.GL_RELEASED_WANTS,
            )
        )


def end_with_parent() -> None:
    """A test that is killed leaves nobody behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def run_job(run_dir: Path, counts: mmap.mmap, place: int, job: int) -> None:
    """This process is the job's slurmstepd from here on; its child asks."""
    end_with_parent()
    register(run_dir / "admin.sock", job, OPTIONS)
    if os.fork() == 0:
        end_with_parent()
        Asker(run_dir / "tenant.sock", counts, place).ask_for_ever()
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
