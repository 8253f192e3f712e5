"""The two sockets: clients speak wire.h on one, where users may also ask in JSON; root speaks
JSON on the other.

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
from dataclasses import replace
from pathlib import Path
from typing import Any

from _gpulease import lib

from leased.base.errors import Refused
from leased.base.requests import answered
from leased.connections import limits
from leased.connections.connection import LONGEST_REQUEST, Connection
from leased.leasing import waiting_reason
from leased.leasing.leases import Leases
from leased.leasing.registry import ENDED
from leased.leasing.tenant import Tenant
from leased.processes.identity import Peer, ProcessId, process_id, still_there
from leased.wire import client_messages, daemon_messages, header, parser
from leased.wire.device_bytes import DeviceBytes

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


Handler = Callable[[dict[str, Any], Peer], dict[str, Any]]


def no_questions(_: dict[str, Any], __: Peer) -> dict[str, Any]:
    raise Refused("nothing can be asked here")


class ClientConnection(Connection):
    """A process with the interposer; the client of leases.Client."""

    LONGEST = header.MAX_MESSAGE
    IDLE_MOST = limits.UNHEARD_PER_UID
    PATIENCE_S = limits.HELLO_S

    def __init__(
        self,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
        leases: Leases,
        find: Callable[[Peer], Tenant | None],
        questions: Handler = no_questions,
    ):
        self.leases = leases
        self.find = find
        self.questions = questions
        self.tenant: Tenant | None = None
        self.wants = False
        self.held = self.passed = 0
        self.restoring = False
        self.calls: tuple[int, int] | None = None
        # Taken over from a daemon before this one, and not yet heard of.
        self.stale = self.restored = False
        self.on_heard: Callable[[ClientConnection], None] = lambda _: None
        self.memory: dict[str, DeviceBytes] = {}
        self.details: dict[str, client_messages.Details] = {}
        self.name = b""  # by which processes of its job ask for it
        self.credit = float(BURST)
        self.credited = loop.time()
        self.process: ProcessId | None = None
        self.version = header.VERSION  # of the protocol, as its HELLO has it
        super().__init__(sock, loop)

    def accepted(self) -> None:
        self.process = process_id(self.peer.pid)

    @property
    def pid(self) -> int:
        return self.peer.pid

    def send(self, message: bytes, descriptor: int | None = None) -> None:
        super().send(header.in_version(message, self.version), descriptor)

    def received(self, data: bytes) -> None:
        if not self._within_rate():
            self.refuse(lib.GL_REFUSED_LIMIT, "too many messages")
            return
        if data[:1] == b"{" and self.tenant is None and not self.restored:
            self._answer(data)
            return
        try:
            message = parser.parse(data)
        except header.WrongVersion as fault:
            self.version = fault.answer
            self.refuse(lib.GL_REFUSED_VERSION, str(fault))
            return
        except header.WireError as fault:
            self.refuse(lib.GL_REFUSED_PROTOCOL, str(fault))
            return
        if isinstance(message, client_messages.Hello):
            self.version = header.version_of(data)
            self._hello(message)
        elif self.stale or isinstance(message, client_messages.Unknown):
            pass  # meant for the daemon before this one, or for one of a later release
        else:
            self._heard(message)

    def _heard(self, message: client_messages.Message) -> None:
        """What a process may say after its HELLO."""
        if self.tenant is None or self.leases.tenants.get(self.tenant.job_id) is not self.tenant:
            self.refuse(lib.GL_REFUSED_NO_TENANT, ENDED)
        else:
            HEARD[type(message)](self, self.tenant, message)

    def hear_memory(self, tenant: Tenant, message: client_messages.Memory) -> None:
        bounded = replace(message, memory=limits.clamped(message.memory))
        self.leases.clients.memory(tenant, self, bounded)

    def hear_why(self, tenant: Tenant, _: client_messages.Why) -> None:
        why = waiting_reason.reason(self.leases, tenant)
        self.send(daemon_messages.waits(why.code, why.text))

    def hear_meet(self, tenant: Tenant, message: client_messages.Meet) -> None:
        if self.account is not None:
            self.account.budget.spend(limits.MEETING_COST_S)
        clients = (c for c in tenant.clients if isinstance(c, ClientConnection))
        self.leases.introductions.meet(clients, self, message)

    def hear_copies(
        self, tenant: Tenant, message: client_messages.HostTake | client_messages.HostGive
    ) -> None:
        """Host memory for copies of its memory."""
        memory = self.leases.copies
        if memory is None or not tenant.swaps:
            self.send(daemon_messages.host(lib.GL_HOST_FAILED, message.number, 0))
        elif isinstance(message, client_messages.HostTake):
            memory.take(self, tenant.job_id, tenant.host_most, message)
        else:
            memory.give(self, tenant.job_id, message)

    def hear_claim(self, tenant: Tenant, message: client_messages.Claim) -> None:
        """It is about to allocate. What is no device of its job is nobody's concern."""
        desk, size = self.leases.claims, min(message.bytes, limits.BYTES_MOST)
        bounded = replace(message, bytes=size, least=min(message.least, size))
        if desk is None or not tenant.swaps or message.uuid not in tenant.gang:
            granted = daemon_messages.claimed(
                lib.GL_CLAIM_GRANTED, message.number, message.uuid, size
            )
            self.send(granted)
        else:
            most = tenant.totals[message.uuid]
            bounded = replace(bounded, bytes=min(size, most), least=min(bounded.least, most))
            desk.claim(self, tenant.job_id, bounded)

    def hear_details(self, tenant: Tenant, message: client_messages.Details) -> None:
        fixed = {why: min(size, limits.BYTES_MOST) for why, size in message.fixed.items()}
        left = min(message.left, tenant.totals.get(message.uuid, 0))
        self.leases.clients.details(tenant, self, replace(message, left=left, fixed=fixed))

    def _answer(self, data: bytes) -> None:
        """No client, but a user with a question in JSON: see questions.py."""
        answer = answered(data, self.LONGEST, lambda asked: self.questions(asked, self.peer))
        super().send(json.dumps(answer).encode())  # it has no version
        self.close()

    def _hello(self, message: client_messages.Hello) -> None:
        tenant = self.find(self.peer)
        if self.tenant is not None and self.restored:
            # An answer to the daemon before this one came first.
            self.leases.clients.detach(self.tenant, self)
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
            self.leases.clients.attach(tenant, self, bounded)
            self.on_heard(self)

    def resync(self) -> None:
        """This connection is of a daemon before this one: begin anew on it."""
        self.stale = self.restored = True
        with contextlib.suppress(OSError):
            for _ in range(STALE_PACKETS):  # who sends more is not waited for
                if not self.sock.recv(self.LONGEST, socket.MSG_DONTWAIT):
                    break
        for self.version in range(header.OLDEST_VERSION, header.VERSION + 1):
            self.send(daemon_messages.RESYNC)  # it ignores those that are not its own

    def _within_rate(self) -> bool:
        now = self.loop.time()
        self.credit = min(BURST, self.credit + (now - self.credited) * RATE_PER_S) - 1
        self.credited = now
        return self.credit >= 0

    def refuse(self, code: int, reason: str) -> None:
        """Say why, then end the connection."""
        self.say(f"refused: {reason}")
        self.send(daemon_messages.refused(code, reason))
        self.close()

    def closed(self) -> None:
        if self.tenant is not None:
            self.leases.clients.detach(self.tenant, self)
            if self.leases.claims is not None:
                self.leases.claims.forget(self)
        self.on_heard(self)


class AdminConnection(Connection):
    """Requests of root (or the admin group): one JSON object a packet."""

    IDLE_MOST = limits.ADMIN_PER_UID
    PATIENCE_S = limits.ADMIN_IDLE_S

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop, handle: Handler):
        self.handle = handle
        super().__init__(sock, loop)

    def received(self, data: bytes) -> None:
        self.idle_since = self.loop.time()
        answer = answered(data, LONGEST_REQUEST, lambda request: self.handle(request, self.peer))
        self.send(json.dumps(answer).encode())


# What a process may say after its HELLO, and who hears it.
HEARD: dict[type[client_messages.Message], Callable[[ClientConnection, Tenant, Any], None]] = {
    client_messages.Memory: ClientConnection.hear_memory,
    client_messages.Request: lambda client, tenant, _: client.leases.clients.request(
        tenant, client
    ),
    client_messages.Stuck: lambda client, tenant, m: client.leases.clients.stuck_in_drain(
        tenant, client, m
    ),
    client_messages.Restored: lambda client, tenant, m: client.leases.clients.restored(
        tenant, client, m
    ),
    client_messages.Progress: lambda client, tenant, m: client.leases.clients.progress(
        tenant, client, m
    ),
    client_messages.Released: lambda client, tenant, m: client.leases.clients.released(
        tenant, client, m
    ),
    client_messages.Suspends: lambda client, tenant, _: client.leases.clients.suspends(tenant),
    client_messages.Name: lambda client, _, m: client.leases.introductions.named(client, m),
    client_messages.Why: ClientConnection.hear_why,
    client_messages.Meet: ClientConnection.hear_meet,
    client_messages.HostTake: ClientConnection.hear_copies,
    client_messages.HostGive: ClientConnection.hear_copies,
    client_messages.Claim: ClientConnection.hear_claim,
    client_messages.Details: ClientConnection.hear_details,
}
