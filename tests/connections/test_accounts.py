"""Each user's share of the daemon's time, on a processor whose every step costs a known time."""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from _gpulease import ffi, lib

from leased.base import listening_socket
from leased.connections import limits
from leased.connections.accounts import Accounts
from leased.connections.listener import Listener
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.node.client_connection import ClientConnection
from leased.processes.identity import Peer
from leased.wire import header
from tests.fuzz.fakes import FakeHandle, FakeListening, FakeLoop, FakeSocket
from tests.support.given import given
from tests.support.together import zip_strict

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
GB = 1 << 30
US = 1e-6
# What asyncio's loop was measured to take on a machine of 2026, and more.
TURN, EVENT, CHANGE_READER, SET_TIMER = 10 * US, 3 * US, 13 * US, 4 * US
MESSAGE, ACCEPT, CONNECT = 50 * US, 20 * US, 80 * US
HELLO = bytes(ffi.buffer(header.new(lib.GL_HELLO)))
REQUEST = bytes(ffi.buffer(header.new(lib.GL_REQUEST)))


class Processor(FakeLoop):
    """A loop on which each step takes time of its one processor, and so of the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.spent = 0.0

    def take(self, seconds: float) -> None:
        self.spent += seconds
        self.now += seconds

    def add_reader(self, sock: Any, callback: Callable[[], None]) -> None:
        self.take(CHANGE_READER)
        super().add_reader(sock, callback)

    def remove_reader(self, sock: Any) -> bool:
        self.take(CHANGE_READER)
        return super().remove_reader(sock)

    def call_later(self, seconds: float, callback: Callable[..., None], *args: Any) -> FakeHandle:
        self.take(SET_TIMER)
        return super().call_later(seconds, callback, *args)

    def run(self, seconds: float, each_turn: Callable[[], None] = lambda: None) -> float:
        """Turn after turn for so long; the processor time that it took."""
        end, before = self.now + seconds, self.spent
        while self.now < end:
            each_turn()
            self.take(TURN)
            ready = [sock for sock in list(self.readers) if sock.readable()]
            for sock in ready:
                self.take(EVENT)
                self.read(sock)
            if self.timers and self.timers[0][0] <= self.now:
                self.take(EVENT)
                self.advance(0)
            elif not ready:  # it sleeps until the next timer
                self.advance(min(end, self.timers[0][0] if self.timers else end) - self.now)
        return self.spent - before


class Sender(FakeSocket):
    """A process that has sent as much as goes into its buffer, always."""

    def __init__(self, loop: Processor, uid: int, says: bytes = REQUEST):
        super().__init__(1, uid)
        self.loop = loop
        self.says = says
        self.told = 0
        self.read_at = 0.0
        self.inbox = deque([HELLO])
        self.idle = False

    def readable(self) -> bool:
        return bool(self.inbox) or not self.idle

    def recv(self, size: int, flags: int = 0) -> bytes:
        if flags & socket.MSG_PEEK:
            return super().recv(size, flags)
        self.loop.take(MESSAGE)
        if not self.readable():
            raise BlockingIOError
        self.told += 1
        self.read_at = self.loop.now
        return self.inbox.popleft() if self.inbox else self.says

    def send(self, data: bytes, flags: int = 0) -> int:
        del flags
        return len(data)


class Backlog(FakeListening):
    """Who waits to be accepted."""

    def __init__(self, loop: Processor):
        super().__init__()
        self.loop = loop

    def accept(self) -> tuple[FakeSocket, str]:
        self.loop.take(ACCEPT)
        return super().accept()


class Door:
    """A Listener before as many tenants as there are users. job_of: the job of a process, by
    its uid. owner: the user of a job."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.loop = Processor()
        monkeypatch.setattr(time, "thread_time", lambda: self.loop.spent)
        monkeypatch.setattr(limits, "MESSAGES_PER_S", 1e9)  # the users' time, not the messages
        gpu = Gpu(0, UUID, "fake", 100 * GB, 100 * GB, 0)
        self.leases = Leases([gpu], self.loop.ns)
        self.job_of: Callable[[int], int] = lambda uid: uid
        self.owner: Callable[[int], int] = lambda job: job
        self.listening = Backlog(self.loop)
        self.listener = Listener(self.listening, self.loop, self.make)  # type: ignore[arg-type]

    def make(self, sock: Any) -> ClientConnection:
        self.loop.take(CONNECT)
        return ClientConnection(sock, self.loop, self.leases, self.find)  # type: ignore[arg-type]

    def find(self, peer: Peer) -> Tenant:
        job = self.job_of(peer.uid)
        if job not in self.leases.tenants:
            totals = {UUID: 100 * GB}
            self.leases.tenants.open(Tenant(job, self.owner(job), given("off"), totals))
        return self.leases.tenants[job]

    def connect(self, uid: int) -> Sender:
        sock = Sender(self.loop, uid)
        self.listening.waiting.append(sock)
        return sock


def share_of(seconds: float) -> float:
    return seconds * limits.SHARE + limits.BURST_S


@pytest.mark.parametrize("connections", [1, 16, 256])
def test_a_flood_takes_one_share_however_many_connections_it_has(
    monkeypatch: pytest.MonkeyPatch, connections: int
) -> None:
    door = Door(monkeypatch)
    flood = [door.connect(1000) for _ in range(connections)]
    door.loop.run(5)
    assert all(sock.open for sock in flood), "it is made to wait, no more"
    before = [sock.told for sock in flood]
    spent = door.loop.run(5)
    assert 0.8 * share_of(5) < spent < 1.1 * share_of(5)
    served = [sock.told - told for sock, told in zip_strict(flood, before)]
    assert sum(served) * MESSAGE > 0.7 * spent, "it is spent on what was sent"
    assert max(served) - min(served) <= 1, "each has its turn"


def test_a_flood_is_paid_by_the_user_of_the_job_whatever_numbers_its_processes_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door(monkeypatch)
    door.job_of = lambda _: 7
    door.owner = lambda _: 1000
    flood = [door.connect(100_000 + n) for n in range(64)]
    door.loop.run(5)
    assert all(sock.told for sock in flood)
    assert door.loop.run(5) < 1.1 * share_of(5)


def test_others_are_served_at_once_beside_a_flood(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch)
    flood = [door.connect(1000) for _ in range(64)]
    other = door.connect(1001)
    other.idle = True
    door.loop.run(5)
    assert all(sock.told for sock in flood)
    for _ in range(100):
        asked = door.loop.now
        other.inbox.append(REQUEST)
        door.loop.run(0.02)
        # In simulated time: after at most a slice of the flood's.
        assert asked < other.read_at < asked + limits.SLICE_S + 10 * MESSAGE
        assert not other.inbox


def test_jobs_of_one_user_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door(monkeypatch)
    door.owner = lambda _: 1000
    flood, other = [door.connect(7) for _ in range(100)], door.connect(8)
    door.loop.run(5)
    before = sum(sock.told for sock in flood), other.told
    door.loop.run(5)
    told = sum(sock.told for sock in flood) - before[0], other.told - before[1]
    assert other.told - before[1] > 500
    assert abs(told[0] - told[1]) <= 2


@pytest.mark.parametrize("said", [[b""], [b"garbage", b""], [HELLO, b""], []])
def test_connecting_again_and_again_gives_a_user_no_more_time(
    monkeypatch: pytest.MonkeyPatch, said: list[bytes]
) -> None:
    door = Door(monkeypatch)

    def hammer() -> None:
        while len(door.listening.waiting) < listening_socket.BACKLOG:
            sock = door.connect(1000)
            sock.inbox = deque(said)
            sock.idle = True

    assert door.loop.run(5, hammer) < 1.2 * share_of(5)
    # Somebody else comes behind a full backlog of these.
    other = door.connect(1001)
    other.idle = True
    door.loop.run(0.15)
    assert other.told == 1


def test_a_connection_that_ends_while_it_waits_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door(monkeypatch)
    flood = [door.connect(1000) for _ in range(64)]
    door.loop.run(5)
    account = door.listener.accounts.of(1000)
    assert sum(map(len, account.queue.values())) > 50
    for connection in list(door.listener.connections):
        connection.close()
    assert not account.queue
    assert not any(sock.open for sock in flood)
    door.loop.run(100)
    assert not door.loop.timers


def test_accounts_of_users_who_are_gone_are_forgotten() -> None:
    loop = FakeLoop()
    accounts = Accounts(loop)  # type: ignore[arg-type]
    for uid in range(1, limits.USERS + 1):
        accounts.of(uid)
    loop.now += 10
    busy = accounts.of(7)
    busy.budget.spend(100)
    assert busy.owes()
    accounts.of(limits.USERS + 1)
    assert set(accounts.by_payer) == {7, limits.USERS + 1}
    assert accounts.of(7) is busy


class Silent:
    """A connection of which each message takes no time that a clock sees."""

    job, account = 1, None
    served = paused = 0

    def serve(self) -> bool:
        self.served += 1
        return False

    def pause(self) -> None:
        self.paused += 1

    def resume(self) -> None: ...


def test_what_the_loop_spends_on_an_event_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 1.0)
    account, who = Accounts(FakeLoop()).of(1000), Silent()  # type: ignore[arg-type]
    most = round(limits.BURST_S / limits.EVENT_COST_S)
    for _ in range(2 * most):
        if not who.paused:
            account.offer(who)
    assert who.paused == 1
    assert most - 2 <= who.served <= most
