"""One accepted connection: whole packets in and out, within its user's share of the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable

from leased import limits
from leased.identity import Peer, peer_of

log = logging.getLogger("gpu-leased")

LONGEST_REQUEST = 65_536


class Connection:
    """One accepted connection: reads whole packets, drops a peer that does not read.

    Serving one user's connections takes its share of the daemon's time: beyond it
    they are not read for a while, so what they send waits in their own buffers.
    """

    LONGEST = LONGEST_REQUEST
    IDLE_MOST = 0  # connections of one user that are idle; the longest idle is closed for another
    PATIENCE_S = 0.0

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop):
        self.sock = sock
        self.loop = loop
        self.peer: Peer = peer_of(sock)
        self.open = True
        self.reads = True
        self.dropped = False  # it did not read what it was told; to be closed
        self.budgets: limits.Budgets | None = None
        self.lines: limits.Lines | None = None
        self.ended: Callable[[Connection], None] = lambda _: None
        self.idle_since: float | None = loop.time()  # None: it may be silent for ever
        self.accepted()
        sock.setblocking(False)
        # From here on the loop knows it: nothing that could fail comes after these.
        loop.add_reader(sock, self._readable)
        self.timer = loop.call_later(self.PATIENCE_S, self._expire)

    def accepted(self) -> None:
        """What is to be known of the peer from the first moment on."""

    def _expire(self) -> None:
        self.isolated(self._patience)

    def _patience(self) -> None:
        """It has been idle for PATIENCE_S, or the timer is set anew."""
        if self.idle_since is None or not self.open:
            return
        left = self.idle_since + self.PATIENCE_S - self.loop.time()
        if left > 0:
            self.timer = self.loop.call_later(left, self._expire)
        else:
            self.say("silent for too long")
            self.close()

    def say(self, words: str) -> None:
        """A line of the journal about this process; a flood of them is cut."""
        if self.lines is None or self.lines.may(self.peer.uid):
            log.info("process %d (uid %d) %s", self.peer.pid, self.peer.uid, words)

    def isolated(self, work: Callable[[], None]) -> None:
        """Do it. A fault of ours ends this connection and touches no other."""
        try:
            work()
        except Exception:
            if self.lines is None or self.lines.may(self.peer.uid):
                log.exception(
                    "process %d (uid %d): a fault while it was served; its connection is closed",
                    *(self.peer.pid, self.peer.uid),
                )
            with contextlib.suppress(Exception):
                self.close()

    def send(self, message: bytes) -> None:
        """Send now or never: a peer whose buffer is full is dropped, not waited for."""
        if not self.open or self.dropped:
            return
        try:
            self.sock.send(message, socket.MSG_NOSIGNAL)
        except OSError as fault:
            self.say(f"is dropped: {fault}")
            self.dropped = True
            # Not from inside whatever called: its lists must not change under it.
            self.loop.call_soon(self._drop)

    def _drop(self) -> None:
        self._served(self._drop, lambda: self.isolated(self.close))

    def _served(self, again: Callable[[], None], serve: Callable[[], None]) -> None:
        """Serve within the user's share of time; else `again` is called when there is some."""
        if self.budgets is None or self.peer.uid == 0:
            serve()
            return
        budget = self.budgets.of(self.peer.uid)
        wait = budget.wait_s(self.loop.time())
        if wait:
            self._pause()
            self.loop.call_later(wait, again)
            return
        began = time.thread_time()
        serve()
        budget.spend(time.thread_time() - began)

    def close(self) -> None:
        if self.open:
            self.open = False
            self.timer.cancel()
            self.loop.remove_reader(self.sock)
            with contextlib.suppress(OSError):
                # The service manager may keep a copy: the peer shall hear of the end.
                self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()
            try:
                self.closed()
            finally:
                self.ended(self)

    def _readable(self) -> None:
        self._served(self._resume, lambda: self.isolated(self._receive))

    def _pause(self) -> None:
        if self.open and self.reads:
            self.reads = False
            self.loop.remove_reader(self.sock)

    def _resume(self) -> None:
        if self.open and not self.reads and not self.dropped:
            self.reads = True
            self.loop.add_reader(self.sock, self._readable)

    def _receive(self) -> None:
        try:
            data = self.sock.recv(self.LONGEST + 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        self.received(data)

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def closed(self) -> None:
        """What is to be done when it has ended."""
