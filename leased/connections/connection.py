"""One accepted connection: whole packets in and out, within its user's share of the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import socket
from collections.abc import Callable

from leased.connections import limits
from leased.connections.accounts import Account, Accounts
from leased.processes.charged_user import NOBODY
from leased.processes.identity import (
    Peer,
    ProcessId,
    can_tell,
    peer_of,
    process_id,
    still_there,
    unread_of,
)

log = logging.getLogger("gpu-leased")

LONGEST_REQUEST = 65_536


class Connection:
    """One accepted connection: reads whole packets, drops a peer that does not read.

    The time to serve it is charged to its user. When that user's share is used up, the connection
    is read when its turn comes (leased/connections/accounts.py), and what it sends waits in its own
    buffer.
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
        self.dropped = False  # its buffer was full; it is about to be closed
        self.file_sent = False  # a descriptor, which the peer may not have read yet
        self.payer = self.peer.uid  # the user whose share of the daemon's time it uses
        self.came_as = NOBODY  # the payer when it was accepted
        self.job = 0  # its job, once that is known
        self.accounts: Accounts | None = None
        self.lines: limits.Lines | None = None
        self.ended: Callable[[Connection], None] = lambda _: None
        self.idle_since: float | None = loop.time()  # None: it may be silent for ever
        self.process: ProcessId | None = process_id(self.peer.pid)
        sock.setblocking(False)
        # From here on the loop knows it: nothing that could fail comes after these.
        loop.add_reader(sock, self._readable)
        self.timer = loop.call_later(self.PATIENCE_S, self._expire)

    def has_opener(self) -> bool:
        """Whether the process that opened the connection still runs, as far as can be told. If not,
        another one may have its number, and whatever is said of that number is of somebody else."""
        return still_there(self.sock, self.process) or not can_tell()

    def _expire(self) -> None:
        self.isolated(self.end_if_idle)

    def end_if_idle(self) -> None:
        """Close the connection if it has been idle for PATIENCE_S; else set the timer again."""
        if self.idle_since is None or not self.open:
            return
        left = self.idle_since + self.PATIENCE_S - self.loop.time()
        if left > 0:
            self.timer = self.loop.call_later(left, self._expire)
        else:
            self.say("silent for too long")
            self.close()

    def say(self, words: str) -> None:
        """Log a line about this process, unless its user has caused too many."""
        if self.lines is None or self.lines.may(self.payer):
            log.info("process %d (uid %d) %s", self.peer.pid, self.peer.uid, words)

    def isolated(self, work: Callable[[], bool | None]) -> bool:
        """Do the work and return its result. An exception closes this connection and no other."""
        try:
            return bool(work())
        except Exception:
            return self._failed()

    def _failed(self) -> bool:
        if self.lines is None or self.lines.may(self.payer):
            log.exception(
                "a fault while process %d (uid %d) was served: its connection is closed",
                *(self.peer.pid, self.peer.uid),
            )
        with contextlib.suppress(Exception):
            self.close()
        return False

    def send(self, message: bytes) -> None:
        """Send now or never: a peer whose buffer is full is dropped, not waited for."""
        if not self.open or self.dropped:
            return
        try:
            self.sock.send(message, socket.MSG_NOSIGNAL)
        except OSError as fault:
            self._drop_soon(fault)

    def takes_file(self) -> bool:
        """Whether a descriptor may be sent now: the peer has read the message with the last one."""
        if self.file_sent and self.open:
            self.file_sent = unread_of(self.sock) > 0
        return not self.file_sent

    def send_file(self, message: bytes, descriptor: int) -> bool:
        """Send the message with a descriptor. False: not now, and later perhaps.

        Descriptors that are on their way count, all together, against the daemon's own limit of
        open files until they are read. So of each connection there is one at most.
        """
        if not self.open or self.dropped:
            return True
        if not self.takes_file():
            return False
        try:
            socket.send_fds(self.sock, [message], [descriptor], socket.MSG_NOSIGNAL)
        except OSError as fault:
            if fault.errno == errno.ETOOMANYREFS:
                return False
            self._drop_soon(fault)
        self.file_sent = True
        return True

    def _drop_soon(self, fault: OSError) -> None:
        """Not now: the caller may be iterating over a list that this would change."""
        if not isinstance(fault, (BrokenPipeError, ConnectionResetError)):  # else it has ended
            self.say(f"is dropped: {fault}")
        self.dropped = True
        self.loop.call_soon(self._drop)

    def _drop(self) -> None:
        if self.open:
            self._readable()

    @property
    def account(self) -> Account | None:
        """The account that its time is charged to; None: it is not counted."""
        if self.accounts is None or self.peer.uid == 0:
            return None
        return self.accounts.of(self.payer)

    def close(self) -> None:
        if self.open:
            self.open = False
            self.timer.cancel()
            self.pause()
            if self.account is not None:
                self.account.leave(self)
            with contextlib.suppress(OSError):
                # The service manager may have a copy of the socket; this tells the peer.
                self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()
            try:
                self.closed()
            finally:
                self.ended(self)

    def _readable(self) -> None:
        if self.accounts is None or self.peer.uid == 0:
            self.serve()
        else:
            self.accounts.of(self.payer).offer(self)

    def pause(self) -> None:
        """Do not read it until it is resumed."""
        if self.reads:
            self.reads = False
            self.loop.remove_reader(self.sock)

    def resume(self) -> None:
        if self.open and not self.reads:
            self.reads = True
            self.loop.add_reader(self.sock, self._readable)

    def serve(self) -> bool:
        """Read one packet, or close the connection if it has ended. Whether there may be more."""
        try:  # as isolated() does, without what a call costs: each message comes this way
            if self.dropped:
                self.close()
            if not self.open:
                return False
            try:
                data = self.sock.recv(self.LONGEST + 1)
            except (BlockingIOError, InterruptedError):
                return False
            except OSError:
                data = b""
            if not data:
                self.close()
                return False
            self.received(data)
            return self.open
        except Exception:
            return self._failed()

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def closed(self) -> None:
        """Called when the connection has ended."""
