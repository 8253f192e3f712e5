"""A process of a job that speaks the wire itself, without a GPU and without the interposer."""

from __future__ import annotations

import ctypes
import signal
import socket
import time
from pathlib import Path

from _gpulease import ffi, lib

from leased.wire import header

AGAIN_S = 0.05  # the interposer pauses too before it connects again
PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """A test that is killed leaves nobody behind."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def message(kind: int, **fields: int) -> bytes:
    """A message of this type as bytes."""
    made = header.new(kind)
    for name, value in fields.items():
        setattr(made, name, value)
    return bytes(ffi.buffer(made))


class WireClient:
    """It always wants its GPU; who inherits says what follows. held: the epoch of its lease, or 0.
    It outlives its daemon, and says what it holds to the next one."""

    def __init__(self, path: Path):
        self.path = path
        self.held = 0

    def run(self) -> None:
        """For ever, on one connection after the other."""
        while True:
            try:
                with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
                    sock.connect(str(self.path))
                    self.serve(sock)
            except OSError:
                pass
            time.sleep(AGAIN_S)

    def serve(self, sock: socket.socket) -> None:
        """On one connection, until it ends."""
        self.hello(sock)
        while data := sock.recv(lib.GL_MAX_MESSAGE):
            kind = header.check_header(data)
            if kind == lib.GL_GRANT:
                self.granted(sock, int(ffi.from_buffer("struct gl_grant *", data).epoch))
            elif kind == lib.GL_REVOKE:
                self.revoked(sock, int(ffi.from_buffer("struct gl_revoke *", data).epoch))
            elif kind == lib.GL_RESYNC:
                self.hello(sock)
            elif kind == lib.GL_REFUSED:
                reason = ffi.from_buffer("struct gl_refused *", data).reason
                self.refused(ffi.string(reason).decode())

    def hello(self, sock: socket.socket) -> None:
        flags = 0 if self.held else lib.GL_HELLO_WANTS
        sock.send(message(lib.GL_HELLO, held_epoch=self.held, flags=flags))

    def release(self, sock: socket.socket, flags: int = 0) -> None:
        """Give the lease back, and ask again in the same breath."""
        epoch, self.held = self.held, 0
        flags |= lib.GL_RELEASED_WANTS
        sock.send(message(lib.GL_RELEASED, epoch=epoch, flags=flags))

    def granted(self, sock: socket.socket, epoch: int) -> None:
        raise NotImplementedError

    def revoked(self, sock: socket.socket, epoch: int) -> None:
        """Who gives its lease back by itself need not heed it."""

    def refused(self, reason: str) -> None:
        raise SystemExit(reason)
