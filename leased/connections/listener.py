"""A listening socket: how fast it accepts, and how many idle connections a user may have."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable

from leased.connections import limits
from leased.connections.accounts import Accounts
from leased.connections.connection import Connection
from leased.processes.charged_user import NOBODY, payer_of
from leased.processes.identity import peer_of

log = logging.getLogger("gpu-leased")


def has_gone(sock: socket.socket) -> bool:
    """Whether the peer has closed the connection and left nothing to read."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True


class Listener:
    """Accepts on a listening socket and makes a connection of each, within limits.

    accounts: on which other work for the same users is charged too.
    """

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[socket.socket], Connection],
        accounts: Accounts | None = None,
    ):
        self.sock = sock
        self.loop = loop
        self.make = make
        self.most = limits.most_connections()
        self.accounts = accounts or Accounts(loop)
        self.lines = limits.Lines(loop.time)
        self.connections: set[Connection] = set()
        # By who paid when they came; the longest idle first.
        self.idle: dict[int, dict[Connection, None]] = {}
        self.accepts = False
        self.rest: asyncio.TimerHandle | None = None  # until then nobody is accepted
        self.open = True
        sock.setblocking(False)
        self._begin()

    def _begin(self) -> None:
        room = len(self.connections) < self.most
        if self.open and not self.accepts and self.rest is None and room:
            self.accepts = True
            self.loop.add_reader(self.sock, self._accept)

    def _cease(self) -> None:
        """Accept nothing for a while: new connections wait in the backlog."""
        if self.accepts:
            self.accepts = False
            self.loop.remove_reader(self.sock)

    def _rest(self, seconds: float) -> None:
        self._cease()
        self.rest = self.loop.call_later(seconds, self._rested)

    def _rested(self) -> None:
        self.rest = None
        self._begin()

    def _accept(self) -> None:
        """Let one in. Of users who have used up their share as many as are worth a rest: they
        may still connect, but not faster than they pay."""
        rest = 0.0
        while self.accepts and rest < limits.REST_S:
            began = time.thread_time() - (0.0 if rest else limits.EVENT_COST_S)
            payer = self._accept_one()
            if payer is None:
                break
            account = self.accounts.of(payer)
            spent = time.thread_time() - began
            account.spend(spent)
            if not account.owes():
                break
            rest += spent / limits.SHARE
        if rest and self.rest is None:
            self._rest(rest)

    def _accept_one(self) -> int | None:
        """Accept one connection. Its payer; None: it has none, or no connection waits."""
        try:
            sock, _ = self.sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return None
        except OSError as fault:
            # No descriptors or memory are left: connections wait until there are.
            log.error("no connection can be accepted for now: %s", fault)
            self._rest(limits.RETRY_S)
            return None
        payer = self._let_in(sock)
        if len(self.connections) >= self.most:
            if self.lines.may(NOBODY):
                log.warning("%d connections: no more are accepted until one ends", self.most)
            self._cease()
        return payer

    def _let_in(self, sock: socket.socket) -> int | None:
        """Make a connection of the socket, or close it if its user has too many.

        Returns the payer; None: it has none.
        """
        try:
            peer = peer_of(sock)
        except OSError:
            sock.close()  # it ended before its peer could be asked for
            return None
        if peer.uid == 0:
            self.take(sock)
            return None
        # Of most who come too often no more must be known.
        if self._is_too_much(sock, peer.uid):
            return self._send_away(sock, peer.uid)
        payer = payer_of(sock, peer)
        if payer != peer.uid and self._is_too_much(sock, payer):
            return self._send_away(sock, payer)
        self.take(sock, payer)
        return payer

    def _is_too_much(self, sock: socket.socket, payer: int) -> bool:
        """Whether the user's share is used up and one more connection is too much.

        It is if the user has as many idle connections as allowed, or has closed this one already.
        """
        if not self.accounts.of(payer).owes():
            return False
        idle = self._idle_of(payer)
        return has_gone(sock) or (bool(idle) and len(idle) >= next(iter(idle)).IDLE_MOST)

    def _send_away(self, sock: socket.socket, payer: int) -> int:
        sock.close()
        if self.lines.may(payer):
            log.info("user %d connects too often: one of its connections is closed", payer)
        return payer

    def take(self, sock: socket.socket, payer: int | None = None) -> Connection | None:
        """Make a connection of an accepted socket; None: it has gone already, or that fails.

        payer: who pays for it; None: it is root's, or was a client's of a previous daemon.
        """
        try:
            connection = self.make(sock)
        except Exception as fault:
            self._unmade(sock, fault)
            return None
        connection.accounts, connection.lines = self.accounts, self.lines
        connection.ended = self._ended
        self.connections.add(connection)
        if payer is not None:
            connection.payer = connection.came_as = payer
            self._make_room(connection)
        elif connection.peer.uid:
            connection.payer = payer_of(sock, connection.peer)
        return connection

    def _unmade(self, sock: socket.socket, fault: Exception) -> None:
        """A connection could not be made: close its socket and say so."""
        uid = NOBODY
        with contextlib.suppress(OSError):
            uid = peer_of(sock).uid
        gone = isinstance(fault, OSError)  # before its peer could be asked for
        if not gone and self.lines.may(uid):
            log.error("a connection of uid %d cannot be served: it is closed", uid, exc_info=fault)
        with contextlib.suppress(OSError, ValueError):
            self.loop.remove_reader(sock)
        with contextlib.suppress(OSError):
            # The service manager may have a copy of the socket; this tells the peer.
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def _make_room(self, connection: Connection) -> None:
        """Close the longest idle connection of the user, if there are too many."""
        idle = self.idle.setdefault(connection.came_as, {})
        idle[connection] = None
        if len(self._idle_of(connection.came_as)) > connection.IDLE_MOST:
            oldest = min(idle, key=lambda c: c.idle_since or 0.0)
            oldest.say(f"is dropped: its user has more than {len(idle) - 1} idle connections")
            oldest.isolated(oldest.close)

    def _idle_of(self, payer: int) -> dict[Connection, None]:
        """Connections of a user that are idle, and, while these are few, some that were."""
        idle = self.idle.get(payer, {})
        if idle and len(idle) >= next(iter(idle)).IDLE_MOST:
            for settled in [c for c in idle if c.idle_since is None]:
                del idle[settled]
        return idle

    def _ended(self, connection: Connection) -> None:
        self.connections.discard(connection)
        idle = self.idle.get(connection.came_as)
        if idle is not None:
            idle.pop(connection, None)
            if not idle:
                del self.idle[connection.came_as]
        self._begin()

    def close(self) -> None:
        """Stop listening and end all connections, without touching any lease."""
        self.open = False
        self._cease()
        self.sock.close()
        for connection in self.connections:
            if connection.open:
                connection.open = False
                connection.timer.cancel()
                self.loop.remove_reader(connection.sock)
                connection.sock.close()
