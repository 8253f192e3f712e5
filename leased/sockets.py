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
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _gpulease import lib

from leased import wire
from leased.errors import Refused
from leased.identity import Peer, peer_of
from leased.leases import Leases, Tenant

log = logging.getLogger("gpu-leased")

BACKLOG = 512
LONGEST_REQUEST = 65_536
CLIENTS_PER_TENANT = 256
BURST = 4096  # messages that a client may send at once
RATE_PER_S = 4096.0  # and how fast it may go on


def listen(path: Path, mode: int, group: int = -1) -> socket.socket:
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
    if group >= 0:
        os.chown(path, -1, group)
    path.chmod(mode)
    made.listen(BACKLOG)
    return made


class Connection:
    """One accepted connection: reads whole packets, drops a peer that does not read."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop):
        self.sock = sock
        self.loop = loop
        self.peer: Peer = peer_of(sock)
        self.open = True
        sock.setblocking(False)
        loop.add_reader(sock, self._readable)

    def send(self, message: bytes) -> None:
        """Send now or never: a peer whose buffer is full is dropped, not waited for."""
        if not self.open:
            return
        try:
            self.sock.send(message, socket.MSG_NOSIGNAL)
        except OSError as fault:
            log.info("client %d is dropped: %s", self.peer.pid, fault)
            # Not from inside whatever called: its lists must not change under it.
            self.loop.call_soon(self.close)

    def close(self) -> None:
        if self.open:
            self.open = False
            self.loop.remove_reader(self.sock)
            with contextlib.suppress(OSError):
                # The service manager may keep a copy: the peer shall hear of the end.
                self.sock.shutdown(socket.SHUT_RDWR)
            self.sock.close()
            self.closed()

    def _readable(self) -> None:
        try:
            data = self.sock.recv(LONGEST_REQUEST + 1)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            data = b""
        if not data:
            self.close()
            return
        try:
            self.received(data)
        except Exception:
            # One client's fault touches no other.
            log.exception("client %d: a fault while serving it", self.peer.pid)
            self.close()

    def received(self, data: bytes) -> None:
        raise NotImplementedError

    def closed(self) -> None:
        """What is to be done when it has ended."""


class ClientConnection(Connection):
    """A process with the interposer; the client of leases.Client."""

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
        self.held = 0
        self.stuck = False
        self.answered = False
        self.calls: tuple[int, int] | None = None
        # Taken over from a daemon before this one, and not yet heard of.
        self.stale = self.restored = False
        self.on_heard: Callable[[ClientConnection], None] = lambda _: None
        self.memory: dict[str, tuple[int, int]] = {}
        self.credit = float(BURST)
        self.credited = loop.time()
        super().__init__(sock, loop)

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
            self.refuse(lib.GL_REFUSED_NO_TENANT, "the job of this process has ended")
        elif isinstance(message, wire.Memory):
            self.leases.memory(self.tenant, self, message)
        elif isinstance(message, wire.Request):
            self.leases.request(self.tenant, self)
        elif isinstance(message, wire.Stuck):
            self.leases.stuck(self.tenant, self, message)
        elif isinstance(message, wire.Progress):
            self.leases.progress(self.tenant, self, message)
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
            self.tenant, self.stale = tenant, False
            self.leases.attach(tenant, self, message)
            self.on_heard(self)

    def resync(self) -> None:
        """This connection is of a daemon before this one: begin anew on it."""
        self.stale = self.restored = True
        with contextlib.suppress(OSError):
            while self.sock.recv(LONGEST_REQUEST, socket.MSG_DONTWAIT):
                pass  # meant for the daemon before
        self.send(wire.RESYNC)

    def _within_rate(self) -> bool:
        now = self.loop.time()
        self.credit = min(BURST, self.credit + (now - self.credited) * RATE_PER_S) - 1
        self.credited = now
        return self.credit >= 0

    def refuse(self, code: int, reason: str) -> None:
        """Say why, then end the connection."""
        log.info("process %d (uid %d) refused: %s", self.peer.pid, self.peer.uid, reason)
        self.send(wire.refused(code, reason))
        self.close()

    def closed(self) -> None:
        if self.tenant is not None:
            self.leases.detach(self.tenant, self)
        self.on_heard(self)


Handler = Callable[[dict[str, Any], Peer], dict[str, Any]]


class AdminConnection(Connection):
    """Requests of root (or the admin group): one JSON object a packet."""

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, handle: Handler):
        self.handle = handle
        super().__init__(sock, loop)

    def received(self, data: bytes) -> None:
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
    """Accepts on a listening socket and makes a connection of each."""

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        make: Callable[[socket.socket], Connection],
    ):
        self.sock = sock
        self.loop = loop
        self.make = make
        self.connections: list[Connection] = []
        sock.setblocking(False)
        loop.add_reader(sock, self._accept)

    def _accept(self) -> None:
        try:
            sock, _ = self.sock.accept()
        except OSError as fault:
            # Out of descriptors: whoever waits in the backlog is served when one is free.
            if not isinstance(fault, BlockingIOError):
                log.error("accept: %s", fault)
            return
        self.take(sock)

    def take(self, sock: socket.socket) -> Connection | None:
        """Make a connection of an accepted socket; None: it has gone already."""
        try:
            connection = self.make(sock)
        except OSError:
            sock.close()  # gone before we could ask who it was
            return None
        self.connections = [c for c in self.connections if c.open]
        self.connections.append(connection)
        return connection

    def close(self) -> None:
        """Stop listening and end all connections, without touching any lease."""
        self.loop.remove_reader(self.sock)
        self.sock.close()
        for connection in self.connections:
            if connection.open:
                connection.open = False
                self.loop.remove_reader(connection.sock)
                connection.sock.close()
