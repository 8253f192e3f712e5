"""Fuzzing targets: bytes in, a sequence of messages to a node or to the admin socket out.

Used by `python -m tests.fuzz.run` (atheris) and by test_fuzz.py. A target raises
Broken when a rule does not hold; it returns how many messages it sent.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from _gpulease import ffi, lib

from leased.admin.admin import Admin
from leased.admin.jobs import Jobs
from leased.config.config import Config
from leased.core.events import Event, LockSet, QuantumSet, RoomChanged
from leased.node.admin_connection import AdminConnection
from leased.store.store import Store
from leased.wire import header
from leased.wire.device_bytes import uuid_bytes
from tests.fuzz.fakes import FakeSocket
from tests.fuzz.node import GB, JOBS, STRANGER, UIDS, UUIDS, Broken, Node, Peers
from tests.fuzz.reader import Reader
from tests.support.message_types import OF_CLIENTS

MESSAGES_MOST = 2000  # of one input
CHECK_EVERY = 16
AMOUNTS = (0, 1, 4096, GB, 30 * GB, 60 * GB, 100 * GB, 2**44, 2**63, 2**64 - 1)
PIECES = (2 << 20, 62 << 20, 256 << 20, 511 << 20)
TIMES = (0.0, 1e-3, 0.05, 0.5, 1.0, 11.0, 100.0, 1e5)
FRAME = {*dict(ffi.typeof("struct gl_header").fields), "header", "zero", "n_devices", "devices"}
KINDS = tuple(sorted(row.number for row in OF_CLIENTS))


def amount(r: Reader) -> int:
    n = r.byte()
    return int(AMOUNTS[n % len(AMOUNTS)]) if n < 250 else r.number()


def epoch_of(r: Reader, node: Node, peer: Peers) -> int:
    """Mostly the right one."""
    n = r.byte()
    if n < 160:
        return peer.epoch
    near = (peer.epoch + 1, node.leases.view.epoch - 1, node.leases.view.epoch, 0, 1)
    others = (*near, 2**63, 2**64 - 1, r.number() if n > 250 else 7)
    return others[n % len(others)]


def fill_devices(r: Reader, made: Any) -> None:
    n = r.byte()
    made.n_devices = n % 4 if n < 240 else n % 20 if n < 250 else r.number() & 0xFFFFFFFF
    for entry in (made.devices[i] for i in range(min(made.n_devices, 4))):
        choice = r.byte()
        raw = uuid_bytes(UUIDS[choice % 3]) if choice < 240 else r.bytes(16)
        ffi.buffer(entry.uuid)[:] = raw
        entry.bytes, entry.fixed = amount(r), amount(r) if choice & 1 else 0
        entry.resident = amount(r) if choice & 2 else entry.bytes


def fill_hello(r: Reader, node: Node, peer: Peers, made: Any) -> None:
    n = r.byte()
    made.flags = n & 3
    made.held_epoch = epoch_of(r, node, peer) if n & 4 else 0
    fill_devices(r, made)


def fill_released(r: Reader, node: Node, peer: Peers, made: Any) -> None:
    made.epoch = epoch_of(r, node, peer)
    n = r.byte()
    made.flags = n
    if n > 127:
        made.prefetch_bytes, made.prefetch_ns = amount(r), amount(r)


def fill_claim(r: Reader, node: Node, peer: Peers, made: Any) -> None:
    del node, peer
    n = r.byte()
    ffi.buffer(made.uuid)[:] = uuid_bytes(UUIDS[n % 3]) if n < 240 else r.bytes(16)
    made.number, made.bytes, made.least = r.byte() + 1, amount(r), amount(r)


def fill_host(r: Reader, node: Node, peer: Peers, made: Any) -> None:
    """Mostly of a size that may be, under one of few numbers."""
    del node, peer
    n = r.byte()
    made.number = (n & 1) << 32 | r.byte() & 7 if n < 240 else r.number()
    made.bytes = (n % 4 + 1) * r.pick(PIECES) if n < 200 else amount(r)


def fill(r: Reader, node: Node, peer: Peers, made: Any) -> None:
    """Whatever the message: its devices, its epoch, every array as one of
    a few, and every other field as an amount, also within structs."""
    fields = dict(ffi.typeof(made[0]).fields)
    if "devices" in fields:
        fill_devices(r, made)
    for name in [name for name in fields if name not in FRAME]:
        if fields[name].type.kind == "array":
            size = ffi.sizeof(fields[name].type)
            ffi.buffer(getattr(made, name))[:] = bytes([r.byte() & 3]) * size  # often the same
            continue
        if fields[name].type.kind == "struct":
            fill(r, node, peer, ffi.addressof(made[0], name))
            continue
        if fields[name].type.kind != "primitive":
            raise TypeError(f"{ffi.typeof(made[0]).cname} has a field {name} that nothing fills")
        most = 2 ** (8 * ffi.sizeof(fields[name].type)) - 1
        setattr(made, name, epoch_of(r, node, peer) if name == "epoch" else amount(r) & most)


def fill_any(r: Reader, node: Node, peer: Peers, made: Any) -> None:
    """The fields of some hang together."""
    body = ffi.typeof(made[0]).cname
    special = {
        "struct gl_hello": fill_hello,
        "struct gl_released": fill_released,
        "struct gl_claim": fill_claim,
        "struct gl_host": fill_host,
    }
    special.get(body, fill)(r, node, peer, made)


def built(r: Reader, node: Node, peer: Peers) -> bytes:
    """A message that parses, with fields from the bytes; now and then of an unknown type."""
    n = r.byte()
    if n > 240:
        return unknown(r)
    kind = KINDS[n % len(KINDS)]
    made = header.new(kind)
    fill_any(r, node, peer, made)
    return bytes(ffi.buffer(made))


def unknown(r: Reader) -> bytes:
    """Of a later release: a sound header, and anything behind it."""
    made = header.new(lib.GL_REQUEST)
    made.type = r.number() & 0xFFFF
    more = r.bytes(r.byte())
    made.length += len(more)
    return bytes(ffi.buffer(made)) + more


# What users ask on the same socket, and what is none of it.
QUESTIONS = (
    b'{"op": "mine"}',
    b'{"op": "mine", "job_id": 1}',
    b'{"op": "mine", "job_id": "1_3"}',
    b'{"op": "park", "job_id": "12+1"}',
    b'{"op": "env"}',
    b'{"op": "status"}',
    b'{"op": "mine", "job_id": 4294967296}',
    b"{" * 700,
    b"{}",
)


def damaged(r: Reader, node: Node, peer: Peers) -> bytes:
    """A message with bytes changed, cut or added; or just bytes."""
    n = r.byte()
    if n < 16:
        return QUESTIONS[n % len(QUESTIONS)]
    if n < 64:
        return r.bytes(n + 1)
    data = bytearray(built(r, node, peer))
    for _ in range(n % 3 + 1):
        data[(r.byte() << 8 | r.byte()) % len(data)] = r.byte()
    return bytes(data[: len(data) - n % 7] if n > 200 else data + bytes(n % 5))


def answer(peer: Peers) -> bytes:
    """What a client that behaves would say now."""
    if not peer.welcomed:
        hello = header.new(lib.GL_HELLO)
        hello.held_epoch = 0 if peer.revoked else peer.epoch
        return bytes(ffi.buffer(hello))
    if not peer.revoked:
        return bytes(ffi.buffer(header.new(lib.GL_REQUEST)))
    made = header.new(lib.GL_RELEASED)
    made.epoch, made.flags = peer.epoch, lib.GL_RELEASED_WANTS
    peer.revoked = False
    return bytes(ffi.buffer(made))


def client_step(r: Reader, node: Node, peer: Peers, op: int) -> None:
    """A client does something."""
    if op < 12:
        node.send(peer, answer(peer))
    elif op < 22:
        node.send(peer, built(r, node, peer))
    elif op < 24:
        node.send(peer, damaged(r, node, peer))
    elif op == 24:
        node.send(peer, b"")
    else:
        peer.deaf, peer.sock.full = not peer.deaf, 4


def site_step(r: Reader, node: Node, op: int) -> None:
    """Jobs come and go, time passes, the site sets something."""
    if op < 29:
        n = r.byte()
        node.connect(STRANGER if n > 240 else n % JOBS + 1, bool(n & 8), n >> 4 & UIDS - 1)
    elif op == 29:
        node.pass_time(r.pick(TIMES))
    elif op == 30:
        node.open(r.byte() % JOBS + 1, r.byte(), r.byte(), 10 ** (r.byte() % 4 + 7), r.byte() > 99)
    elif op == 31:
        node.close_job(r.byte() % JOBS + 1)
    elif op == 32 and (n := r.byte()) > 64:
        if n > 160:
            node.restart()
        else:
            node.measured(n, amount(r), amount(r))
    else:
        uuid, n = UUIDS[r.byte() % 3], r.byte()
        event: Event = LockSet(uuid, (None, "on", "off", "auto")[n % 4])
        if n > 160:
            event = QuantumSet(uuid, (None, 1, 10**9)[n % 3])
        elif n > 128:
            event = RoomChanged(uuid, AMOUNTS[n % 7])
        node.leases.run(event)


def wire_step(r: Reader, node: Node) -> None:
    """One thing that happens."""
    op, n = r.byte() % 34, r.byte()
    if op >= 26:
        site_step(r, node, op)
    elif node.peers:
        client_step(r, node, node.peers[n % len(node.peers)], op)


def wire_target(data: bytes) -> int:
    """Clients of several jobs say anything in any order."""
    r = Reader(data)
    first = r.byte()
    node = Node(10**9 if first & 1 else 0, waits=bool(first & 2))
    for job in range(1, JOBS + 1):
        node.open(job, first + job, first >> 1 if first & 64 else job, 10**8)
    for job in range(1, JOBS + 1):
        node.connect(job, root=bool(first & 128))
    steps = 0
    while r.left > 0 and node.messages < MESSAGES_MOST:
        wire_step(r, node)
        steps += 1
        if steps % CHECK_EVERY == 0:
            node.check()
    node.end()
    return node.messages


# -- the admin socket ------------------------------------------------------------------------

OPS = ("register", "job_end", "status", "usage", "set", "drain", "resume", "reload", "dance", "")
KEYS = (
    *("job_id", "uid", "nodes", "shards", "gpus", "options", "device", "after"),
    *("lock", "quantum", "reserve", "drain", "op", "x", "\x1b[0m"),
)
VALUES: tuple[Any, ...] = (
    *(0, 1, 2, 7, -1, 2**32 - 1, 2**32, 2**64, 10**400, 1.5, float("inf"), True, None),
    *("", "0", "on", "off", "auto", "user", "5s", "10%", "2GiB", "tq:5,lock:on", "tq:1ms"),
    *("\ud800", "\0", "é" * 300, "all", UUIDS[0], [], [0], [0, 1], [0, 0], [[]], [{}], ["0"]),
    *([99], [True], [1.0], {}, {"op": "register"}, [0] * 5000, "x" * 300),
)
RIGHT = {"job_id": 7, "uid": 1000, "nodes": 1, "shards": 1}


class AdminNode:
    """The real handler of the admin socket, with its store in a directory."""

    def __init__(self, directory: Path):
        self.node = Node()
        config = Config(preload=__file__, state_dir=directory, runtime_dir=directory)
        self.store = Store(directory / "usage.db")
        leases = self.node.leases
        self.admin = Admin(
            config, Jobs(leases, self.store), lambda: None, self._ended, admin_gid=50
        )

    def _ended(self, job_id: int) -> None:
        self.store.close_tenant(job_id, *self.node.leases.tenants.close(job_id))
        self.store.settle([record.run for record in self.store.unsettled()])

    def ask(self, data: bytes, uid: int) -> dict[str, Any]:
        """One request; the answer, which is always one."""
        sock = FakeSocket(os.getpid(), uid, gid=50 if uid == 2 else uid)
        connection = AdminConnection(sock, self.node.loop, self.admin.handle)  # type: ignore[arg-type]
        sock.inbox.append(data)
        self.node.loop.read(sock)
        if len(sock.outbox) != 1:
            raise Broken(f"{len(sock.outbox)} answers to {data[:100]!r}")
        text = sock.outbox[0]
        reply = json.loads(text)
        if not isinstance(reply.get("ok"), bool) or len(text) > 200_000:
            raise Broken(f"an answer of {len(text)} bytes to {data[:100]!r}")
        if uid and uid != 2 and reply["ok"] and json.loads(data)["op"] not in ("status", "usage"):
            raise Broken(f"user {uid} may do {data[:100]!r}")
        connection.close()
        self.node.loop.advance(0.1)
        self.node.messages += 1
        return dict(reply)

    def end(self) -> None:
        for job in list(self.node.leases.tenants):
            self._ended(job)
        if self.store.fault:
            raise Broken(self.store.fault)
        self.node.check()


def request(r: Reader) -> bytes:
    """JSON that is mostly a request."""
    n = r.byte()
    if n < 24:
        return r.bytes(n + 1)
    made: dict[str, Any] = {"op": r.pick(OPS)}
    if n & 1:
        made |= RIGHT | {"job_id": r.byte() % 20, "gpus": [r.byte() % 4]}
    for _ in range(n >> 1 & 3):
        made[r.pick(KEYS)] = r.pick(VALUES)
    text = json.dumps(made, ensure_ascii=bool(n & 32)).encode(errors="surrogatepass")
    if n > 240:
        at = r.byte() % len(text)
        text = text[:at] + r.bytes(r.byte() % 8) + text[at:]
    return text or b"{"


def admin_target(data: bytes, node: AdminNode) -> int:
    """Requests of root, of the admin group and of users."""
    r = Reader(data)
    before = node.node.messages
    while r.left > 0 and node.node.messages - before < MESSAGES_MOST:
        node.ask(request(r), r.pick((0, 0, 0, 1, 2)))
    node.end()
    return node.node.messages - before
