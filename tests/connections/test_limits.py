"""What one user may take of the daemon: connections, time, bytes; on a clock of the tests' own."""

from __future__ import annotations

import itertools
import os
import subprocess
import time
from dataclasses import replace
from typing import Any

import pytest
from _gpulease import ffi, lib

from leased.api.client import ask
from leased.connections import limits
from leased.connections.listener import Listener
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.node import client_connection
from leased.node.admin_connection import AdminConnection
from leased.node.client_connection import ClientConnection
from leased.processes.identity import Peer, process_id
from leased.wire import header
from leased.wire.device_bytes import uuid_bytes
from tests.core.items import items
from tests.fuzz.fakes import FakeListening, FakeLoop, FakeSocket
from tests.fuzz.node import Node
from tests.slurm.leased import Leased
from tests.support.given import given
from tests.support.wire_client import message

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
GB = 1 << 30


class Door:
    """A Listener on fakes, with one tenant of uid 1000, job 7, to which every process belongs."""

    def __init__(self) -> None:
        self.loop = FakeLoop()
        gpu = Gpu(0, UUID, "fake", 100 * GB, 100 * GB, 0)
        self.leases = Leases([gpu], self.loop.ns)
        self.tenant = Tenant(7, 1000, given("on"), {UUID: 100 * GB})
        self.leases.tenants.open(self.tenant)
        self.tenant_of: dict[int, Tenant] = {}  # by uid, where it is another one
        self.listening = FakeListening()
        self.listener = Listener(self.listening, self.loop, self.make)  # type: ignore[arg-type]

    def make(self, sock: Any) -> ClientConnection:
        return ClientConnection(sock, self.loop, self.leases, self.find)  # type: ignore[arg-type]

    def find(self, peer: Peer) -> Tenant:
        return self.tenant_of.get(peer.uid, self.tenant)

    def connect(self, uid: int = 1000, gone: bool = False) -> FakeSocket:
        sock = FakeSocket(os.getpid(), uid, gone)
        self.listening.waiting.append(sock)
        self.loop.read(self.listening)
        return sock

    def connect_in_time(self, uid: int = 1000, pause_s: float = 0.01) -> FakeSocket:
        """One whose user has used up its share may have to wait a little in the backlog."""
        sock = self.connect(uid)
        self.loop.advance(pause_s)
        while self.listening.waiting:
            self.loop.advance(0.001)
            self.loop.read(self.listening)
        return sock

    def say(self, sock: FakeSocket, data: bytes) -> None:
        sock.outbox.clear()
        sock.inbox.append(data)
        self.loop.read(sock)


HELLO = message(lib.GL_HELLO)
REQUEST = message(lib.GL_REQUEST)


def refusal(sock: FakeSocket) -> str:
    """The reason in the last message, which is a refusal; the connection is over."""
    assert not sock.open
    reply = ffi.from_buffer("struct gl_refused *", sock.outbox[-1])
    assert reply.header.type == lib.GL_REFUSED
    return ffi.string(reply.reason).decode()  # type: ignore[no-any-return]


def test_connections_without_hello_are_closed_and_others_stay() -> None:
    door = Door()
    silent, client = door.connect(), door.connect()
    door.say(client, HELLO)
    door.loop.advance(limits.HELLO_S / 2)
    assert silent.open
    door.loop.advance(limits.HELLO_S)
    assert not silent.open
    door.loop.advance(1000)
    assert client.open
    assert len(door.listener.connections) == 1


def test_idle_connections_of_one_user_make_room_for_its_own_only() -> None:
    door = Door()
    others = [door.connect_in_time(1001) for _ in range(10)]
    mine = [door.connect_in_time() for _ in range(limits.UNHEARD_PER_UID)]
    for sock in mine[:20]:
        door.say(sock, HELLO)
        door.loop.advance(0.01)
    door.connect_in_time()
    assert all(sock.open for sock in mine), "those that said HELLO do not count"
    more = [door.connect_in_time() for _ in range(20)]
    assert [sock.open for sock in mine] == [True] * 20 + [False] + [True] * (len(mine) - 21)
    assert all(sock.open for sock in others + more)


def test_root_may_have_as_many_as_it_wants() -> None:
    door = Door()
    socks = [door.connect(uid=0) for _ in range(2 * limits.UNHEARD_PER_UID)]
    assert all(sock.open for sock in socks)


def test_when_all_connections_are_taken_others_wait_in_the_backlog() -> None:
    door = Door()
    door.listener.most = 3
    socks = [door.connect(uid=n) for n in range(1, 6)]
    assert [len(door.listener.connections), len(door.listening.waiting)] == [3, 2]
    door.say(socks[0], b"")
    door.loop.turn()
    assert [len(door.listener.connections), len(door.listening.waiting)] == [3, 1]


def test_out_of_descriptors_it_waits_before_it_tries_again() -> None:
    door = Door()
    door.listening.fault = OSError(24, "Too many open files")
    door.connect()
    assert door.listening not in door.loop.readers, "it would be called again at once"
    door.listening.fault = None
    door.loop.advance(limits.RETRY_S)
    door.loop.turn()
    assert len(door.listener.connections) == 1


def test_a_process_that_has_ended_is_nobody() -> None:
    door = Door()
    sock = door.connect(gone=True)
    door.say(sock, HELLO)
    assert refusal(sock) == "the process that opened this connection has ended"
    assert door.tenant.clients == []


def test_a_request_is_answered_while_its_asker_runs() -> None:
    """Whoever has the connection then may have another one's number."""
    loop, asked = FakeLoop(), []

    def handle(request: Any, _: Peer) -> Any:
        asked.append(request)
        return {}

    for sock in (FakeSocket(os.getpid(), 0), FakeSocket(os.getpid(), 0, gone=True)):
        AdminConnection(sock, loop, handle)  # type: ignore[arg-type]
        sock.inbox.append(b"{}")
        loop.read(sock)
        assert (len(asked), sock.open, bool(sock.outbox)) == (1, not sock.gone, not sock.gone)


def test_processes_of_one_job() -> None:
    door = Door()
    socks = []
    for _ in range(client_connection.CLIENTS_PER_TENANT + 1):
        socks.append(door.connect())
        door.say(socks[-1], HELLO)
        door.loop.advance(0.01)
    assert refusal(socks[-1]) == "job 7 has 256 processes on the GPU already"
    assert len(door.tenant.clients) == client_connection.CLIENTS_PER_TENANT


def test_messages_of_one_process() -> None:
    door = Door()
    sock = door.connect(uid=0)  # root's time is not counted, so that this is its rate
    door.say(sock, HELLO)
    for _ in range(limits.MESSAGES_BURST - 1):
        door.say(sock, REQUEST)
    assert sock.open
    door.say(sock, REQUEST)
    assert refusal(sock) == "too many messages"


def test_a_message_that_is_too_long_is_not_read_whole() -> None:
    door = Door()
    sock = door.connect()
    door.say(sock, HELLO + bytes(60_000))
    assert refusal(sock) == "no header of ours"


def test_one_users_flood_takes_its_share_of_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door()
    readings = itertools.count()
    monkeypatch.setattr(time, "thread_time", lambda: next(readings) * 0.005)  # 5 ms a message
    door.tenant_of[1001] = Tenant(8, 1001, given("off"), {UUID: 100 * GB})
    door.leases.tenants.open(door.tenant_of[1001])
    flood, other = [door.connect_in_time() for _ in range(10)], door.connect_in_time(1001)
    door.loop.advance(1)
    for sock in (*flood, other):
        door.say(sock, HELLO)
        door.loop.advance(0.1)
    for sock in flood:
        sock.inbox.extend([REQUEST] * 1000)
    for turn in range(1000):  # 10 s
        if turn % 5 == 0:  # it takes a tenth of the time
            other.inbox.append(REQUEST)
        door.loop.turn()
        assert not other.inbox, "it is answered at once"
        door.loop.advance(0.01)
        for sock in (*flood, other):
            sock.outbox.clear()
    served = sum(1000 - len(sock.inbox) for sock in flood)
    assert all(sock.open for sock in flood), "it is made to wait, no more"
    # 5 ms each: no more than its share of the time, and what may come at once.
    assert 0.7 < served * 0.005 / (10 * limits.SHARE + limits.BURST_S) < 1.2


def test_a_process_that_connects_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)
    door = Door()
    heard: list[bytes] = []
    for _ in range(1000):  # 1 s
        sock = door.connect()
        sock.on_send = heard.append
        sock.inbox.extend([HELLO, b""])
        door.loop.read(sock)
        door.loop.advance(0.001)
        door.loop.read(door.listening)
    assert 100 < len(heard) <= (limits.BURST_S + limits.SHARE) / limits.HELLO_COST_S + 2


def test_one_users_processes_do_not_fill_the_journal(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "gpu-leased")
    door = Door()
    for _ in range(1000):
        door.say(door.connect_in_time(), b"garbage")
    door.loop.advance(0.1)
    door.say(door.connect_in_time(1001), b"garbage")
    of = [record.args[1] for record in caplog.records]  # type: ignore[index]
    assert of[:20] == [1000] * 20
    assert of[-1] == 1001
    assert len(of) <= 20 + door.loop.now - 1000 + 2, "and one a second"
    door.loop.advance(5)
    caplog.clear()
    for _ in range(100):
        door.say(door.connect_in_time(pause_s=0), b"garbage")
    assert 0 < len(caplog.records) <= 7


@pytest.mark.parametrize("oversub", [False, True])
def test_reported_memory_cannot_overflow(oversub: bool) -> None:
    """A job that may have more than the device has is believed more than that."""
    door = Door()
    door.tenant.given = replace(given("on"), oversub=oversub)
    for number in range(3):
        sock = door.connect()
        door.say(sock, HELLO)
        memory = header.new(lib.GL_MEMORY)
        memory.n_devices = 1
        ffi.buffer(memory.devices[0].uuid)[:] = uuid_bytes(UUID)
        memory.devices[0].bytes = memory.devices[0].fixed = 2**64 - 1
        door.say(sock, bytes(ffi.buffer(memory)))
        assert sock.open
        usage = door.leases.tenants.usage()[7][UUID]
        most = limits.BYTES_MOST * (number + 1) if oversub else door.tenant.most_on(UUID)
        assert usage.peak_bytes == 2 * most
    assert client_connection.CLIENTS_PER_TENANT * 2 * limits.BYTES_MOST < 2**63


def test_a_process_that_lies_about_the_link_cannot_prolong_its_lease() -> None:
    door = Door()
    liar = door.connect(uid=0)
    door.say(liar, HELLO)
    for _ in range(100):
        door.say(liar, REQUEST)
        (client,) = door.tenant.clients
        lies = {"prefetch_bytes": 1 << 30, "prefetch_ns": 2**64 - 1}
        door.say(liar, message(lib.GL_RELEASED, epoch=client.held, **lies))
    assert client.held == 0
    device = door.leases.loop.arbiter.devices[UUID]
    assert device.residency.paging.bytes_s >= limits.SLOWEST_BYTES_NS * 1e9


def hello(epoch: int) -> bytes:
    return message(lib.GL_HELLO, held_epoch=epoch)


def kinds(sock: FakeSocket) -> list[int]:
    """What it was told, and its queue is empty then."""
    told = [header.check_header(data) for data in sock.outbox]
    sock.outbox.clear()
    return told


def holders(door: Door) -> list[int]:
    return [tenant.id for tenant in door.leases.loop.arbiter.rules.holders(UUID)]


@pytest.mark.parametrize("epoch", [1, 2, 99, 2**63, 2**64 - 1])
def test_a_process_that_claims_another_jobs_lease_is_told_to_release_it(epoch: int) -> None:
    door = Door()
    holder = door.connect()
    door.say(holder, HELLO)
    door.say(holder, REQUEST)
    assert kinds(holder) == [lib.GL_GRANT]
    door.tenant = Tenant(8, 1001, given("on"), {UUID: 100 * GB})
    door.leases.tenants.open(door.tenant)
    liar = door.connect(uid=1001)
    door.say(liar, hello(epoch))
    assert kinds(liar) == [lib.GL_WELCOME, lib.GL_REVOKE]
    assert kinds(holder) == [], "it is not disturbed"
    assert holders(door) == [7]


@pytest.mark.parametrize("epoch", [2, 2**63, 2**64 - 1])
def test_a_lease_that_was_never_granted_cannot_be_claimed(epoch: int) -> None:
    door = Door()
    liar = door.connect()
    door.say(liar, hello(epoch))
    assert kinds(liar) == [lib.GL_WELCOME, lib.GL_REVOKE]
    assert holders(door) == []
    # And no epoch of later leases comes from it: they stay within what is stored.
    door.say(liar, REQUEST)
    assert door.leases.view.epoch == 2


def test_idle_admin_connections_are_closed_and_one_user_has_few() -> None:
    loop = FakeLoop()
    listening = FakeListening()

    def make(sock: Any) -> AdminConnection:
        return AdminConnection(sock, loop, lambda *_: {})  # type: ignore[arg-type]

    listener = Listener(listening, loop, make)  # type: ignore[arg-type]
    socks = [FakeSocket(os.getpid(), 1000) for _ in range(limits.ADMIN_PER_UID + 1)]
    for sock in socks:
        listening.waiting.append(sock)
        loop.read(listening)
    assert [sock.open for sock in socks] == [False] + [True] * limits.ADMIN_PER_UID
    loop.advance(limits.ADMIN_IDLE_S / 2)
    socks[1].inbox.append(b'{"op":"x"}')
    loop.turn()
    loop.advance(limits.ADMIN_IDLE_S / 2 + 1)
    assert [sock.open for sock in socks].count(True) == 1
    assert listener.idle[1000].keys() == listener.connections


# -- against the real daemon -----------------------------------------------------------------

HOARD = """
import socket, sys
def connect():
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(sys.argv[1])
    return sock
socks = [connect() for _ in range(int(sys.argv[2]))]
over = 0
for sock in socks:
    sock.setblocking(False)
print("connected", flush=True)
sys.stdin.readline()
for sock in socks:
    try:
        over += sock.recv(10) == b""
    except BlockingIOError:
        pass
print(over, flush=True)
"""


def test_a_users_idle_connections_do_not_keep_others_out(leased: Leased) -> None:
    most = limits.UNHEARD_PER_UID
    hoarder = subprocess.Popen(
        ["/usr/bin/python3", "-c", HOARD, str(leased.run_dir / "tenant.sock"), str(most + 40)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        user="nobody",
    )
    try:
        assert hoarder.stdout is not None
        assert hoarder.stdout.readline() == "connected\n"
        # One after the other: when this is answered all of those before are accepted.
        with sockets_to(leased) as sock:
            sock.send(REQUEST)
            assert len(sock.recv(1024)) == ffi.sizeof("struct gl_refused")
        assert ask(leased.admin_socket, {"op": "status"})["tenants"] == []
        over, _ = hoarder.communicate("\n", timeout=60)
        assert int(over) >= 40
    finally:
        hoarder.kill()
        hoarder.communicate()


def sockets_to(leased: Leased) -> Any:
    import socket

    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(str(leased.run_dir / "tenant.sock"))  # waits where the backlog is full
    sock.settimeout(30)
    return sock


PASSED_ON = """
import os, socket, sys, time
sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
sock.connect(sys.argv[1])
parent = os.getpid()
if os.fork():
    os._exit(0)
while os.getppid() == parent:
    time.sleep(0.01)
sock.send(bytes.fromhex(sys.argv[2]))
sys.stdout.buffer.write(sock.recv(1024))
"""


@pytest.mark.parametrize("said", [HELLO, b'{"op": "mine"}', b'{"op": "env"}'])
def test_a_connection_that_outlives_who_opened_it(leased: Leased, said: bytes) -> None:
    # The number of the process that connected may be anybody's when the message comes.
    done = subprocess.run(
        ["/usr/bin/python3", "-c", PASSED_ON, str(leased.run_dir / "tenant.sock"), said.hex()],
        check=True,
        capture_output=True,
        timeout=60,
        user="nobody",
    )
    assert b"the process that opened this connection has ended" in done.stdout


def test_still_there_on_a_real_socket() -> None:
    import socket

    from leased.processes.identity import still_there

    one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with one, other:
        assert still_there(one, process_id(os.getpid()))


def test_devices_that_the_node_does_not_have_leave_nothing_behind() -> None:
    """A process names ever others, and each would be kept as long as its job runs."""
    node = Node()
    node.open(1, 0, 0, 10**9)
    peer = node.connect(1)
    assert peer
    before = 0
    for n in range(200):
        report = header.new(lib.GL_MEMORY if n else lib.GL_HELLO)
        report.n_devices = 16
        for k in range(16):
            ffi.buffer(report.devices[k].uuid)[:] = bytes([0, n, k, *range(13)])
            report.devices[k].bytes = GB
        node.send(peer, bytes(ffi.buffer(report)))
        before = before or items(node.leases)
    assert peer.sock.open
    assert items(node.leases) == before
    node.end()
