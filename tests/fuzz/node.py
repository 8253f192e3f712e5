"""A node in memory for fuzzing: real connections over real leases, and what must always hold."""

from __future__ import annotations

import functools
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, replace
from typing import Any
from unittest import mock

from _gpulease import ffi, lib

from leased.admin.gang import Gangs
from leased.admin.moves import Moves
from leased.admin.questions import Questions
from leased.base.errors import Refused
from leased.config.config import Config
from leased.connections.listener import Listener
from leased.copies import claim_desk
from leased.core.events import Tick
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.moving.device_access import DeviceAccess
from leased.moving.mover import Move
from leased.moving.saver import Saver
from leased.node.client_connection import ClientConnection
from leased.processes.identity import Peer
from leased.store.records import TenantRecord
from leased.usage.usage import Usage
from leased.wire import client_messages, header
from leased.wire.device_bytes import uuid_text
from tests.core.items import items
from tests.fuzz import host_memory
from tests.fuzz.fakes import FakeListening, FakeLoop, FakeSocket
from tests.support.given import given

GB = 1 << 30
UUIDS = tuple(f"GPU-{n:08x}-0000-0000-0000-000000000000" for n in range(3))
JOBS = 6
GANGS = (UUIDS[:1], UUIDS[1:2], UUIDS[:2], UUIDS[1:], UUIDS)
LOCKS = ("on", "auto", "off")
SOCKETS = 24
UIDS = 8  # of one job
STRANGER = 99  # of no job
ITEMS_MOST = 20_000  # in all containers below the leases, far above what this node can need
COUNT_EVERY = 8  # checks
FIRST_EPOCH = 1000


class Broken(AssertionError):
    """A rule does not hold."""


def kind_of(said: bytes) -> int:
    """The type of what the daemon says. In a version that it does not serve it only refuses."""
    kind = header.check_header(header.in_version(said, header.VERSION))
    served = header.OLDEST_VERSION <= header.version_of(said) <= header.VERSION
    if not served and kind != lib.GL_REFUSED:
        raise Broken(f"a client of version {header.version_of(said)} is told message {kind}")
    return kind


class Faults(logging.Handler):
    """Catches what the daemon logs of exceptions: serving one client must never raise."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1]:
            raise Broken("a fault while serving a client") from record.exc_info[1]


@contextmanager
def quiet() -> Iterator[None]:
    """The daemon's log says only faults, and its processor clock is the same in every run."""
    log = logging.getLogger("gpu-leased")
    handler, kept, level, spread = Faults(), list(log.handlers), log.level, log.propagate
    passed = [0.0]

    def thread_time() -> float:
        passed[0] += 300e-6
        return passed[0]

    log.handlers[:], log.propagate = [handler], False
    log.setLevel(logging.ERROR)
    try:
        with (
            mock.patch.object(time, "thread_time", thread_time),
            mock.patch.object(claim_desk, "LOOK_S", host_memory.LOOK_S),
        ):
            yield
    finally:
        log.handlers[:], log.propagate = kept, spread
        log.setLevel(level)


class NoStore:
    """Knows no job that has ended."""

    def find(self, _: int | str) -> list[TenantRecord]:
        return []


class NoCarriers:
    """Carries nothing."""

    def carries(self, _: object) -> bool:
        return False


class NoMover:
    """Moves no job."""

    def begin(self, *_: object) -> Move:
        raise Refused("nothing moves here")

    def last(self, _: int) -> Move | None:
        return None


class Peers:
    """One connection as its client sees it."""

    def __init__(self, sock: FakeSocket, job: int):
        self.sock = sock
        self.job = job
        self.epoch = 0  # of the last GRANT, REVOKE or STEP
        self.revoked = False
        self.welcomed = False
        self.deaf = False  # it does not read what it is told
        self.asked = False  # the last that it said was a question in JSON


class Node:
    """Leases, a Listener and their clients. grace_ns: as after a restart. waits: claims wait."""

    def __init__(self, grace_ns: int = 0, waits: bool = False):
        self.keeper, self.waits = host_memory.FakeKeeper(), waits
        self.loop = FakeLoop()
        self.peers: list[Peers] = []
        self.owners: dict[int, int] = {}  # who was granted an epoch
        self.claimed: set[tuple[int, int]] = set()  # jobs that said that they hold an epoch
        self.messages = self.checks = 0
        self._begin(FIRST_EPOCH, grace_ns)
        self.empty = items(self.leases)

    def _begin(self, first_epoch: int, grace_ns: int) -> None:
        gpus = [Gpu(n, uuid, "fake", 100 * GB, 100 * GB, 0) for n, uuid in enumerate(UUIDS)]
        self.leases = Leases(gpus, self.loop.ns, first_epoch=first_epoch, grace_ns=grace_ns)
        self.leases.stuck.later = self.loop.call_later
        self.copies = host_memory.lend(self.leases, self.keeper, self.loop, self.waits)
        self.listening = FakeListening()
        self.listener = Listener(self.listening, self.loop, self._connection)  # type: ignore[arg-type]

    def _connection(self, sock: Any) -> ClientConnection:
        moves = Moves(
            self.leases,
            NoMover(),  # type: ignore[arg-type]
            Saver(self.leases, NoCarriers()),  # type: ignore[arg-type]
            Gangs(self.leases, lambda: None),
            Config,
            refuses_offline=lambda _: None,
            has_mps=lambda _: False,
            access=DeviceAccess(lambda: False, None),  # type: ignore[arg-type]
        )
        asked = Questions(self.leases, NoStore(), self._find, Config, moves)  # type: ignore[arg-type]
        return ClientConnection(sock, self.loop, self.leases, self._find, asked.handle)  # type: ignore[arg-type]

    def _find(self, peer: Peer) -> Tenant | None:
        return self.leases.tenants.get(peer.gid)

    # -- what can happen --------------------------------------------------------

    def open(self, job: int, gang: int, lock: int, quantum_ns: int, usage: bool = False) -> None:
        if job not in self.leases.tenants:
            totals = dict.fromkeys(GANGS[gang % len(GANGS)], 100 * GB)
            lock_name = LOCKS[lock % len(LOCKS)]
            options = given(lock_name, quantum_ns, swaps=bool(lock & 8))
            tenant = Tenant(job, 1000 + job, replace(options, oversub=bool(lock & 4)), totals)
            before = {uuid: Usage(lease_ns=5) for uuid in totals} if usage else None
            self.leases.tenants.open(tenant, before)

    def close_job(self, job: int) -> None:
        if job in self.leases.tenants:
            self.leases.tenants.close(job)

    def connect(self, job: int, root: bool = True, other: int = 0) -> Peers | None:
        """job: whose process it is; STRANGER: of none. other: of which of its further uids, as
        containers have them; 0: its user's own."""
        if len(self.peers) >= SOCKETS:
            return None
        uid = 100_000 + job * UIDS + other if other else 1000 + job
        sock = FakeSocket(os.getpid(), 0 if root else uid, gid=job)
        sock.on_send = functools.partial(self._sent, job)
        self.listening.waiting.append(sock)
        self.loop.read(self.listening)
        self.peers.append(Peers(sock, job))
        return self.peers[-1]

    def restart(self) -> None:
        """The daemon is another one; the service manager has kept the connections."""
        before, epoch, now = self.leases, self.leases.view.epoch, self.loop.now
        usage = before.tenants.usage()
        self.copies.close()
        self.loop = FakeLoop()
        self.loop.now = now + 0.2
        self._begin(epoch + FIRST_EPOCH, 10**9)
        for tenant in before.tenants.values():
            self.leases.tenants.open(
                replace(tenant, clients=[], idle_ns=None), usage[tenant.job_id]
            )
        self.peers = [peer for peer in self.peers if peer.sock.open]
        for peer in self.peers:
            connection = self.listener.take(peer.sock)  # type: ignore[arg-type]
            assert isinstance(connection, ClientConnection)
            connection.resync()
        self.listen_to()

    def send(self, peer: Peers, data: bytes) -> None:
        """One packet from a client; b"" is the end of its connection."""
        self.messages += 1
        peer.asked = data[:1] == b"{"
        with suppress(header.WireError):
            said = client_messages.parse(data)
            if isinstance(said, client_messages.Hello) and said.held_epoch:
                self.claimed.add((peer.job, said.held_epoch))
        if peer.sock.open:
            peer.sock.inbox.append(data)
            self.loop.read(peer.sock)
        self.listen_to()

    def pass_time(self, seconds: float) -> None:
        """Let time pass, with all deadlines of the arbiter on the way."""
        end = self.loop.now + seconds
        for _ in range(1000):
            due = self.leases.loop.arbiter.next_deadline()
            if due is None or due / 1e9 > end:
                break
            self.loop.advance(max(0.0, due / 1e9 - self.loop.now) + 1e-9)
            self.leases.run(Tick())
        else:
            raise Broken(f"the arbiter wants to be called at {due} again and again")
        self.loop.advance(max(0.0, end - self.loop.now))
        self.loop.turn()
        self.listen_to()

    def listen_to(self) -> None:
        """Clients read what the daemon said. Who is dropped is forgotten."""
        for peer in self.peers:
            while peer.sock.outbox and not peer.deaf:
                self._heard(peer, peer.sock.outbox.popleft())
        if any(not peer.sock.open for peer in self.peers):
            self.peers = [peer for peer in self.peers if peer.sock.open]

    def measured(self, choice: int, own: int, other: int) -> None:
        """NVML has shown a device: what our processes have there, and somebody else."""
        gpu = list(self.leases.gpus)[choice % len(self.leases.gpus.by_uuid)]
        shown = {os.getpid(): own} if choice & 1 else {}
        self.leases.gpus.update(gpu, shown | {1: other})

    # -- what must hold ---------------------------------------------------------

    def _sent(self, job: int, data: bytes) -> None:
        """At the moment of a new lease nobody else has it, not even who is still to release it."""
        if data[:1] == b"{" or kind_of(data) != lib.GL_GRANT:
            return
        epoch = int(ffi.from_buffer("struct gl_grant *", data).epoch)
        if epoch in self.owners or (job, epoch) in self.claimed:
            return
        self.owners[epoch] = job
        state = self.leases.loop.arbiter
        mine = state.tenants[job]
        if mine.lease is None or mine.lease.revoked:
            return
        others = {t.id: t for uuid in mine.gang for t in state.rules.holders(uuid) if t is not mine}
        for other in others.values():
            side_by_side = state.rules.can_share(mine) and state.rules.can_share(other)
            if not side_by_side and "off" not in (
                state.rules.lock_of(mine),
                state.rules.lock_of(other),
            ):
                raise Broken(f"job {job} is granted what job {other.id} has not released")

    @staticmethod
    def _answered(peer: Peers, answer: dict[str, Any]) -> None:
        """To a question, once, and of the jobs of its user or its own alone."""
        if not peer.asked or peer.welcomed or peer.sock.open:
            raise Broken(f"a client of job {peer.job} is told {answer}")
        if not answer["ok"] and not answer["error"]:
            raise Broken(f"a question is refused without a reason: {answer}")

    def _heard(self, peer: Peers, data: bytes) -> None:
        if data[:1] == b"{":
            self._answered(peer, json.loads(data))
            return
        kind = kind_of(data)
        if kind == lib.GL_GRANT:
            grant = ffi.from_buffer("struct gl_grant *", data)
            epoch = peer.epoch = int(grant.epoch)
            peer.revoked = False
            if (peer.job, epoch) in self.claimed:
                pass  # taken over from before a restart, by its own word
            elif self.owners.setdefault(epoch, peer.job) != peer.job:
                raise Broken(f"job {peer.job} is granted lease {epoch} of {self.owners[epoch]}")
            self._check_devices(peer, grant)
        elif kind == lib.GL_WELCOME:
            welcome = ffi.from_buffer("struct gl_welcome *", data)
            peer.welcomed = True
            if welcome.job_id != peer.job:
                raise Broken(f"a process of job {peer.job} is told that it is {welcome.job_id}'s")
            self._check_devices(peer, welcome)
        elif kind == lib.GL_OTHERS:
            self._check_devices(peer, ffi.from_buffer("struct gl_memory *", data))
        elif kind == lib.GL_RESYNC:
            peer.welcomed = False
        elif kind == lib.GL_REVOKE:
            peer.revoked = True
        elif kind == lib.GL_STEP:
            peer.epoch = int(ffi.from_buffer("struct gl_epoch *", data).epoch)
            peer.revoked = True

    def _check_devices(self, peer: Peers, message: Any) -> None:
        tenant = self.leases.tenants.get(peer.job)
        for n in range(message.n_devices if tenant else 0):
            uuid = uuid_text(bytes(ffi.buffer(message.devices[n].uuid)))
            if tenant and uuid not in tenant.gang:
                raise Broken(f"job {peer.job} is told of {uuid}")

    def check(self) -> None:
        """Nobody holds what is not free, nothing is left over, nothing grows."""
        state = self.leases.loop.arbiter
        if self.leases.loop.events or self.leases.loop.busy:
            raise Broken("events are left over")
        for uuid in UUIDS:
            settled = [t for t in state.rules.holders(uuid) if t.lease and not t.lease.revoked]
            locks = sorted(state.rules.lock_of(t) for t in settled)
            if locks.count("on") and len([lock for lock in locks if lock != "off"]) > 1:
                raise Broken(f"{[t.id for t in settled]} hold {uuid} at once, one of them alone")
            if len(settled) > len({t.id for t in settled}) or len(settled) > JOBS:
                raise Broken(f"{len(settled)} holders of {uuid}")
        for tenant in self.leases.tenants.values():
            if len(tenant.clients) > len(self.peers):
                raise Broken(f"job {tenant.job_id} has processes that have ended")
        if wrong := host_memory.fault(self.leases, self.keeper, self.copies):
            raise Broken(wrong)
        if set(state.tenants) != set(self.leases.tenants):
            raise Broken("the arbiter has other tenants than the leases")
        for usage in self.leases.tenants.usage().values():
            for used in usage.values():
                if any(not 0 <= value < 2**63 for value in astuple(used)):
                    raise Broken(f"usage that no database holds: {used}")
        self.checks += 1
        found = items(self.leases) if self.checks % COUNT_EVERY == 0 else 0
        if found > ITEMS_MOST:
            raise Broken(f"{found} items below the leases")

    def end(self) -> None:
        """Everybody goes; what is left must be what there was at the start."""
        self.check()
        for peer in list(self.peers):
            self.send(peer, b"")
        for job in list(self.leases.tenants):
            self.leases.tenants.close(job)
        for _ in range(10_000):  # some may have to wait before they are read
            if not any(peer.sock.inbox for peer in self.peers):
                break
            self.pass_time(0.1)
        self.pass_time(100_000)
        host_memory.end_process(self.copies)
        for gpu in list(self.leases.gpus):
            self.leases.gpus.update(gpu, {})
        self.check()
        if self.listener.connections or self.listener.idle:
            raise Broken("connections are left over")
        left = items(self.leases)
        if left > self.empty:
            raise Broken(f"{left} items are left, there were {self.empty}")
