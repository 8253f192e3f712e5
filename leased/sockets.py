"""The two sockets: clients speak wire.h on one, root speaks JSON on the other.

SOCK_SEQPACKET keeps messages whole. asyncio's stream servers refuse it, so the
loop only tells when a socket can be read.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import socket
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from _gpulease import lib

from leased import limits, waiting, wire
from leased.accounts import Account, Accounts
from leased.connection import LONGEST_REQUEST, Connection
from leased.errors import Refused
from leased.identity import Peer, ProcessId, peer_of, process_id, still_there
from leased.leases import ENDED, Leases, Tenant
from leased.payers import NOBODY, payer_of

log = logging.getLogger("gpu-leased")

BACKLOG = 512
CLIENTS_PER_TENANT = 256
BURST = 4096  # messages that a client may send at once
RATE_PER_S = 4096.0  # and how fast it may go on
STALE_PACKETS = 1024  # of a daemon before this one, thrown away at once


def listen(path: Path, mode: int) -> socket.socket:
    """A listening SEQPACKET socket at `path`, replacing what a daemon before left there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
    made.setblocking(False)
    old = os.umask(0o177)
    try:
        made.bind(str(path))
    finally:
        os.umask(old)
    path.chmod(mode)
    made.listen(BACKLOG)
    return made


class ClientConnection(Connection):
    """A process with the interposer; the client of leases.Client."""

    LONGEST = wire.MAX_MESSAGE
    IDLE_MOST = limits.UNHEARD_PER_UID
    PATIENCE_S = limits.HELLO_S

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        leases: Leases,
        find: Callable[[Peer], Tenant | None],
    ):
        self.leases = leases
        self.find = find
        self.tenant: Tenant | None = None
        self.wants = False
        self.held = self.passed = 0
        self.stuck = False
        self.answered = False
        self.looks: dict[str, tuple[int, int]] = {}
        self.restoring = False
        self.calls: tuple[int, int] | None = None
        # Taken over from a daemon before this one, and not yet heard of.
        self.stale = self.restored = False
        self.on_heard: Callable[[ClientConnection], None] = lambda _: None
        self.memory: dict[str, wire.Bytes] = {}
        self.credit = float(BURST)
        self.credited = loop.time()
        self.process: ProcessId | None = None
        super().__init__(sock, loop)

    def accepted(self) -> None:
        self.process = process_id(self.peer.pid)
        self.payer = payer_of(self.sock, self.peer, self.process)

    @property
    def pid(self) -> int:
        return self.peer.pid

    def received(self, data: bytes) -> None:
        if not self._within_rate():
            self.refuse(lib.GL_REFUSED_LIMIT, "too many messages")
            return
        try:
            message = wire.parse(data)
        except wire.WireError as fault:
            self.refuse(lib.GL_REFUSED_PROTOCOL, str(fault))
            return
        if isinstance(message, wire.Hello):
            self._hello(message)
        elif self.stale:
            pass  # meant for the daemon before
        elif self.tenant is None or self.leases.tenants.get(self.tenant.job_id) is not self.tenant:
            self.refuse(lib.GL_REFUSED_NO_TENANT, ENDED)
        elif isinstance(message, wire.Memory):
            bounded = replace(message, memory=limits.clamped(message.memory))
            self.leases.memory(self.tenant, self, bounded)
        elif isinstance(message, wire.Request):
            self.leases.request(self.tenant, self)
        elif isinstance(message, wire.Stuck):
            self.leases.stuck(self.tenant, self, message)
        elif isinstance(message, wire.Restored):
            self.leases.restored(self.tenant, self, message)
        elif isinstance(message, wire.Progress):
            self.leases.progress(self.tenant, self, message)
        elif isinstance(message, wire.Why):
            why = waiting.reason(self.leases, self.tenant)
            self.send(wire.waits(why.code, why.text))
        else:
            self.leases.released(self.tenant, self, message)

    def _hello(self, message: wire.Hello) -> None:
        tenant = self.find(self.peer)
        if self.tenant is not None and self.restored:
            # An answer to the daemon before this one came first.
            self.leases.detach(self.tenant, self)
            self.tenant = None
        if self.tenant is not None:
            self.refuse(lib.GL_REFUSED_PROTOCOL, "a second HELLO on one connection")
        elif not still_there(self.sock, self.process):
            # Whatever /proc says of this number may be of another process by now.
            self.refuse(
                lib.GL_REFUSED_NO_TENANT, "the process that opened this connection has ended"
            )
        elif tenant is None:
            self.refuse(
                lib.GL_REFUSED_NO_TENANT,
                f"process {self.peer.pid} belongs to no job that shares a GPU here; "
                "submit with --gres=shard:1, or unset LD_PRELOAD",
            )
        elif len(tenant.clients) >= CLIENTS_PER_TENANT:
            self.refuse(
                lib.GL_REFUSED_LIMIT,
                f"job {tenant.job_id} has {CLIENTS_PER_TENANT} processes on the GPU already",
            )
        else:
            self.tenant, self.stale, self.idle_since = tenant, False, None
            # Whatever numbers its processes have: the job's user pays, and no other does.
            self.payer, self.job = tenant.uid, tenant.job_id
            if self.account is not None and not self.restored:
                self.account.budget.spend(limits.HELLO_COST_S)
            bounded = replace(message, memory=limits.clamped(message.memory))
            self.leases.attach(tenant, self, bounded)
            self.on_heard(self)

    def resync(self) -> None:
        """This connection is of a daemon before this one: begin anew on it."""
        self.stale = self.restored = True
        with contextlib.suppress(OSError):
            for _ in range(STALE_PACKETS):  # who sends more is not waited for
                if not self.sock.recv(self.LONGEST, socket.MSG_DONTWAIT):
                    break
        self.send(wire.RESYNC)

    def _within_rate(self) -> bool:
        now = self.loop.time()
        self.credit = min(BURST, self.credit + (now - self.credited) * RATE_PER_S) - 1
        self.credited = now
        return self.credit >= 0

    def refuse(self, code: int, reason: str) -> None:
        """Say why, then end the connection."""
        self.say(f"refused: {reason}")
        self.send(wire.refused(code, reason))
        self.close()

    def closed(self) -> None:
        if self.tenant is not None:
            self.leases.detach(self.tenant, self)
        self.on_heard(self)


Handler = Callable[[dict[str, Any], Peer], dict[str, Any]]


class AdminConnection(Connection):
    """Requests of root (or the admin group): one JSON object a packet."""

    IDLE_MOST = limits.ADMIN_PER_UID
    PATIENCE_S = limits.ADMIN_IDLE_S

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, handle: Handler):
        self.handle = handle
        super().__init__(sock, loop)

    def received(self, data: bytes) -> None:
        self.idle_since = self.loop.time()
        self.send(json.dumps(self._answer(data)).encode())

    def _answer(self, data: bytes) -> dict[str, Any]:
        try:
            if len(data) > LONGEST_REQUEST:
                raise Refused(f"a request of more than {LONGEST_REQUEST} bytes")
            try:
                request = json.loads(data)
            except (ValueError, RecursionError):
                raise Refused("the request is not JSON") from None
            if not isinstance(request, dict):
                raise Refused("the request is not a JSON object")
            return {"ok": True} | self.handle(request, self.peer)
        except Refused as fault:
            return {"ok": False, "error": str(fault), "hint": fault.hint}


class Listener:
    """Accepts on a listening socket and makes a connection of each, within limits."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[socket.socket], Connection],
    ):
        self.sock = sock
        self.loop = loop
        self.make = make
        self.most = limits.most_connections()
        self.accounts = Accounts(loop)
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
        """Whoever comes waits in the backlog, and others are not disturbed by it."""
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
        began = time.thread_time()
        try:
            sock, _ = self.sock.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError as fault:
            # Out of descriptors or memory: whoever waits is served when there are some.
            log.error("accept: %s", fault)
            self._rest(limits.RETRY_S)
            return
        connection = self.take(sock)
        if len(self.connections) >= self.most:
            if self.lines.may(NOBODY):
                log.warning("%d connections: no more are accepted until one ends", self.most)
            self._cease()
        if connection is not None and connection.account is not None:
            self._charge(connection.account, began)

    def _charge(self, account: Account, began: float) -> None:
        """A user who has used up its share may still connect, but not faster than it pays."""
        rests = account.owes() and self.rest is None
        if rests:
            self._cease()
        spent = time.thread_time() - began + limits.EVENT_COST_S * (2 if rests else 1)
        account.budget.spend(spent)
        if rests:
            self._rest(spent / limits.SHARE)

    def take(self, sock: socket.socket, *, kept: bool = False) -> Connection | None:
        """Make a connection of an accepted socket; None: it has gone already, or that fails.

        kept: of a daemon before this one, where its process had said HELLO.
        """
        try:
            connection = self.make(sock)
        except Exception as fault:
            self._unmade(sock, fault)
            return None
        connection.accounts, connection.lines = self.accounts, self.lines
        connection.ended = self._ended
        self.connections.add(connection)
        if connection.peer.uid and not kept:
            self._make_room(connection)
        return connection

    def _unmade(self, sock: socket.socket, fault: Exception) -> None:
        """Nothing stays of a connection that could not be made."""
        uid = NOBODY
        with contextlib.suppress(OSError):
            uid = peer_of(sock).uid
        gone = isinstance(fault, OSError)  # before we could ask who it was
        if not gone and self.lines.may(uid):
            log.error("a connection of uid %d cannot be served: it is closed", uid, exc_info=fault)
        with contextlib.suppress(OSError, ValueError):
            self.loop.remove_reader(sock)
        with contextlib.suppress(OSError):
            # The service manager may keep a copy: the peer shall hear of the end.
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def _make_room(self, connection: Connection) -> None:
        """One user keeps only so many idle connections: the longest idle one goes."""
        connection.came_as = connection.payer
        idle = self.idle.setdefault(connection.came_as, {})
        idle[connection] = None
        if len(idle) > connection.IDLE_MOST:
            for other in [c for c in idle if c.idle_since is None]:
                del idle[other]
        if len(idle) > connection.IDLE_MOST:
            oldest = min(idle, key=lambda c: c.idle_since or 0.0)
            oldest.say(f"is dropped: its user has more than {len(idle) - 1} idle connections")
            oldest.isolated(oldest.close)

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
