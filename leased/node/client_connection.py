"""A connection on tenant.sock: of a client, or of a user who asks a question."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import Callable
from typing import Any

from _gpulease import lib

from leased.base.errors import Refused
from leased.base.requests import answered
from leased.connections import limits
from leased.leasing.leases import Leases
from leased.leasing.registry import ENDED
from leased.leasing.tenant import Client, Tenant
from leased.node import message_handlers
from leased.node.admin_connection import Handler
from leased.processes import procfs
from leased.processes.identity import Peer
from leased.wire import client_messages, daemon_messages, header

CLIENTS_PER_TENANT = 256
STALE_PACKETS = 1024  # of a previous daemon, thrown away at once
OPENER_ENDED = "the process that opened this connection has ended"


def no_questions(_: dict[str, Any], __: Peer) -> dict[str, Any]:
    raise Refused("nothing can be asked here")


def why_of_no_job(pid: int) -> str:
    """The refusal of a process that is of no job, with what may help it."""
    if procfs.is_contained(pid):
        return (
            f"process {pid} is in a container, and in the cgroup of no job that shares a GPU here; "
            "start it in the job, and let it stay in the job's cgroup (podman run "
            "--cgroups=disabled)"
        )
    return (
        f"process {pid} belongs to no job that shares a GPU here; "
        "submit with --gres=shard:1, or unset LD_PRELOAD"
    )


class ClientConnection(Client):
    """One process with the interposer.

    The first message is HELLO; what the process says after it goes to message_handlers.py. A user's
    process without the interposer may ask one question in JSON instead.
    """

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
        self.forget()
        # stale: the connection is a former daemon's, and its client has not said HELLO to this one.
        # restored: it is a former daemon's, whatever the client has said since.
        self.stale = self.restored = False
        self.on_heard: Callable[[ClientConnection], None] = lambda _: None
        self.may_send, self.counted_at = limits.MESSAGES_BURST, loop.time()  # messages; since when
        self.version = header.VERSION  # of the protocol, as its HELLO has it
        super().__init__(sock, loop)
        self.pid = self.peer.pid

    def send(self, message: bytes) -> None:
        if self.version != header.VERSION:  # in which all are made
            message = header.in_version(message, self.version)
        super().send(message)

    def send_file(self, message: bytes, descriptor: int) -> bool:
        return super().send_file(header.in_version(message, self.version), descriptor)

    def received(self, data: bytes) -> None:
        self.may_send -= 1
        if self.may_send < 0 and self._sends_too_much():
            self.refuse(lib.GL_REFUSED_LIMIT, "too many messages")
            return
        if self.tenant is None and data[:1] == b"{" and not self.restored:
            self._answer(data)
            return
        try:
            message = client_messages.parse(data)
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
        elif self.stale or message is None:
            pass  # the message is meant for a former daemon, or for one of a later release
        elif self.tenant is None or not self.leases.tenants.has(self.tenant):
            self.refuse(lib.GL_REFUSED_NO_TENANT, ENDED)
        else:
            message_handlers.handle(self.leases, self.tenant, self, message)

    def _sends_too_much(self) -> bool:
        """It has used up what it might send. What it may send now is reckoned only then."""
        now = self.loop.time()
        earned = int((now - self.counted_at) * limits.MESSAGES_PER_S)
        self.may_send, self.counted_at = min(limits.MESSAGES_BURST, earned) - 1, now
        return self.may_send < 0

    def _answer(self, data: bytes) -> None:
        """Answer a user's question in JSON (questions.py); then this connection is of no client."""
        answer = answered(data, self.LONGEST, self._asked)
        super().send(json.dumps(answer).encode())  # it has no version
        self.close()

    def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        found = self.questions(question, self.peer)
        if not self.has_opener():
            raise Refused(OPENER_ENDED, "ask from a process that stays until it has its answer")
        return found

    def _hello(self, message: client_messages.Hello) -> None:
        tenant = self.find(self.peer)
        if self.tenant is not None and self.restored:
            # An answer to the previous daemon came first.
            self._leave(self.tenant)
        if self.tenant is not None:
            self.refuse(lib.GL_REFUSED_PROTOCOL, "a second HELLO on one connection")
        elif not self.has_opener():
            self.refuse(lib.GL_REFUSED_NO_TENANT, OPENER_ENDED)
        elif tenant is None:
            self.refuse(lib.GL_REFUSED_NO_TENANT, why_of_no_job(self.peer.pid))
        elif len(tenant.clients) >= CLIENTS_PER_TENANT:
            self.refuse(
                lib.GL_REFUSED_LIMIT,
                f"job {tenant.job} has {CLIENTS_PER_TENANT} processes on the GPU already",
            )
        else:
            self.tenant, self.stale, self.idle_since = tenant, False, None
            # Whatever numbers its processes have: the job's user pays, and no other does.
            self.payer, self.job = tenant.uid, tenant.job_id
            if self.account is not None and not self.restored:
                self.account.spend(limits.HELLO_COST_S)
            self.leases.slices.came(tenant)
            self.keeper, self.moves = message.keeper, message.moves
            self.saves, self.carries = message.saves, message.carries
            memory = limits.clamped(message.memory, self.leases.gpus.by_uuid)
            self.leases.clients.attach(tenant, self, message._replace(memory=memory))
            self.on_heard(self)

    def _leave(self, tenant: Tenant) -> None:
        """Nothing of what it has said to this daemon counts any more."""
        message_handlers.client_gone(self.leases, tenant, self)
        self.tenant = None
        self.forget()

    def resync(self) -> None:
        """Ask the client for a new HELLO: the connection was made by the previous daemon."""
        self.stale = self.restored = True
        with contextlib.suppress(OSError):
            for _ in range(STALE_PACKETS):  # a client that sends more is not waited for
                if not self.sock.recv(self.LONGEST, socket.MSG_DONTWAIT):
                    break
        for self.version in range(header.OLDEST_VERSION, header.VERSION + 1):
            self.send(header.in_version(daemon_messages.RESYNC, self.version))  # it heeds its own

    def refuse(self, code: int, reason: str) -> None:
        """Send the reason, then end the connection."""
        self.say(f"refused: {reason}")
        self.send(daemon_messages.refused(code, reason))
        self.close()

    def closed(self) -> None:
        if self.tenant is not None:
            message_handlers.client_gone(self.leases, self.tenant, self)
        self.on_heard(self)
