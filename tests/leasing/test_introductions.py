"""Processes of one job meet through the daemon, and no others, whatever they know."""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _gpulease import ffi, lib

from leased.leasing import introductions
from leased.leasing.introductions import KEEPER, Introductions
from leased.leasing.tenant import Client, Tenant
from leased.wire import client_messages, daemon_messages, header
from tests.connections.test_limits import GB, HELLO, UUID, Door, refusal
from tests.support.given import given

NAME, OTHER = b"n" * 16, b"o" * 16


def said(kind: int, **fields: Any) -> bytes:
    made = header.new(kind)
    for name, value in fields.items():
        setattr(made, name, value)
    return bytes(ffi.buffer(made))


def meet(name: bytes, number: int = 1) -> bytes:
    return said(lib.GL_MEET, name=name, number=number, what=(3, 4))


def answer(data: bytes) -> tuple[int, int, tuple[int, int]]:
    """Code, number and what of a MET."""
    assert header.check_header(data) == lib.GL_MET
    met = ffi.from_buffer("struct gl_met *", data)
    return int(met.code), int(met.number), (int(met.what[0]), int(met.what[1]))


class Process(Client):
    """Keeps what it is given."""

    def __init__(self, name: bytes = b"") -> None:
        self.forget()
        self.name = name
        self.keeper, self.lends = False, True
        self.told: list[bytes] = []
        self.ends: list[socket.socket] = []
        self.reads = self.passes = True

    def send(self, message: bytes) -> None:
        self.told.append(message)

    def takes_file(self) -> bool:
        return self.reads

    def send_file(self, message: bytes, descriptor: int) -> bool:
        if not (self.reads and self.passes):
            return False
        self.told.append(message)
        self.ends.append(socket.socket(fileno=os.dup(descriptor)))
        return True


def asks(
    asker: Process,
    clients: list[Process],
    name: bytes,
    *,
    after_ns: int = 0,
    restarted: bool = False,
) -> None:
    """after_ns: since the daemon's start."""
    node = Introductions(lambda: 10**18, restarted=restarted)
    node.clock = lambda: 10**18 + after_ns
    node.meet(
        [(client.lends, client) for client in clients], asker, client_messages.Meet(name, 1, (3, 4))
    )


def test_two_of_a_job_get_two_ends_of_one_connection() -> None:
    asker, other, third = Process(OTHER), Process(NAME), Process()
    before = sum(1 for _ in Path("/proc/self/fd").iterdir())
    asks(asker, [asker, third, other], NAME)
    assert sum(1 for _ in Path("/proc/self/fd").iterdir()) == before + 2, (
        "the daemon keeps neither end"
    )
    assert answer(asker.told[0]) == (lib.GL_MET_INTRODUCED, 1, (3, 4))
    assert answer(other.told[0]) == (lib.GL_MET_ASKED, 0, (3, 4))
    assert not third.told
    with asker.ends[0] as one, other.ends[0] as two:
        two.send(b"part")
        assert one.recv(100) == b"part"
        two.close()
        assert one.recv(100) == b""


@pytest.mark.parametrize("name", [OTHER, bytes(16)])
def test_no_process_has_that_name(name: bytes) -> None:
    """Nor is a process that has said none found by an empty one."""
    asker, nameless = Process(), Process()
    asks(asker, [asker, nameless, Process(NAME)], name)
    assert answer(asker.told[0])[0] == lib.GL_MET_NOBODY
    assert not asker.ends


def test_after_a_restart_it_may_still_come() -> None:
    asker, late = Process(), introductions.SETTLING_NS
    for after_ns in (late - 1, late):
        asks(asker, [asker], NAME, after_ns=after_ns, restarted=True)
    told = [answer(message)[0] for message in asker.told]
    assert told == [lib.GL_MET_LATER, lib.GL_MET_NOBODY]


def test_the_keeper_of_a_chain_is_found_by_what_it_is() -> None:
    asker, keeper, abroad = Process(), Process(), Process()
    asks(asker, [asker, keeper], introductions.KEEPER)
    assert answer(asker.told[0])[0] == lib.GL_MET_NOBODY
    keeper.keeper, abroad.lends = True, False
    asks(asker, [asker, keeper], introductions.KEEPER)
    assert answer(keeper.told[0]) == (lib.GL_MET_ASKED, 0, (3, 4))
    abroad.keeper, asker.keeper = True, True
    asks(asker, [asker, abroad], introductions.KEEPER)
    assert answer(abroad.told[0])[0] == lib.GL_MET_ABROAD, "and it hears that its memory is to stay"
    for process in (asker, keeper, abroad):
        for end in process.ends:
            end.close()


def chained(job: int, uid: int, name: str, swaps: bool = True) -> Tenant:
    return Tenant(job, uid, replace(given("on", swaps=swaps), chain=name), {UUID: 100 * GB})


@pytest.mark.parametrize(
    ("uid", "name", "swaps", "code"),
    [
        (1000, "c", True, lib.GL_MET_INTRODUCED),
        (1000, "c", False, lib.GL_MET_INTRODUCED),
        (1000, "d", True, lib.GL_MET_NOBODY),
        (1001, "c", True, lib.GL_MET_NOBODY),
    ],
)
def test_processes_of_jobs_of_one_chain_meet(uid: int, name: str, swaps: bool, code: int) -> None:
    """Memory of another job is lent where the two hold their GPU together, and else stays."""
    door = Door()
    one, other = chained(8, 1000, "c"), chained(9, uid, name, swaps)
    for tenant in (one, other):
        door.leases.tenants.open(tenant)
    door.tenant_of[1000] = one
    owner = door.connect()
    door.say(owner, HELLO)
    door.say(owner, said(lib.GL_NAME, name=NAME))
    door.tenant_of[uid] = other
    asker = door.connect(uid)
    door.say(asker, HELLO)
    owner.outbox.clear()
    door.say(asker, meet(NAME))
    assert answer(asker.outbox[0])[0] == code
    asked = lib.GL_MET_ASKED if swaps else lib.GL_MET_ABROAD
    assert [answer(m)[0] for m in owner.outbox] == [asked] * (not code)
    assert other.clients[0].borrows == (swaps and not code)
    keeper, client = one.clients[0], other.clients[0]
    keeper.keeper, client.borrows = True, False
    door.say(asker, meet(KEEPER))
    assert not client.borrows, "that is no memory"


def test_without_descriptors_it_is_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(*_: object) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr(socket, "socketpair", none_left)
    asker, other = Process(), Process(NAME)
    asks(asker, [asker, other], NAME)
    assert answer(asker.told[0])[0] == lib.GL_MET_LATER
    assert not other.told


@pytest.mark.parametrize("who", ["asker", "other"])
@pytest.mark.parametrize("why", ["reads", "passes"])
def test_while_one_of_them_does_not_read_it_is_later(who: str, why: str) -> None:
    """Or while the kernel passes no more descriptors on."""
    asker, other = Process(OTHER), Process(NAME)
    setattr(asker if who == "asker" else other, why, False)
    asks(asker, [asker, other], NAME)
    assert [answer(told)[0] for told in asker.told] == [lib.GL_MET_LATER]
    assert not asker.ends
    for end in other.ends:
        with end:
            assert end.recv(100) == b"", "nobody is there"


def test_a_process_does_not_meet_itself() -> None:
    asker = Process(NAME)
    asks(asker, [asker], NAME)
    assert [answer(told)[0] for told in asker.told] == [lib.GL_MET_NOBODY]


def test_the_name_of_another_jobs_process_is_nobodys() -> None:
    door = Door()
    stranger = Tenant(8, 1001, given("on"), {UUID: 100 * GB})
    door.leases.tenants.open(stranger)
    door.tenant_of[1001] = stranger
    owner, fellow, attacker = door.connect(), door.connect(), door.connect(1001)
    for sock in (owner, fellow, attacker):
        door.say(sock, HELLO)
    door.say(owner, said(lib.GL_NAME, name=NAME))
    assert list(owner.outbox) == [daemon_messages.NAMED]
    owner.outbox.clear()
    door.say(attacker, meet(NAME))
    assert answer(attacker.outbox[0])[0] == lib.GL_MET_NOBODY
    assert not owner.outbox
    door.say(attacker, said(lib.GL_NAME, name=NAME))  # nor does it stand in for it
    door.say(fellow, meet(NAME, 7))
    assert answer(fellow.outbox[0])[:2] == (lib.GL_MET_INTRODUCED, 7)
    assert answer(owner.outbox[0])[0] == lib.GL_MET_ASKED
    assert list(attacker.outbox) == [daemon_messages.NAMED]


def test_an_ended_process_is_not_found_and_a_stranger_is_refused() -> None:
    door = Door()
    owner, fellow = door.connect(), door.connect()
    for sock in (owner, fellow):
        door.say(sock, HELLO)
    door.say(owner, said(lib.GL_NAME, name=NAME))
    door.say(owner, b"")
    door.say(fellow, meet(NAME))
    assert answer(fellow.outbox[0])[0] == lib.GL_MET_NOBODY
    unheard = door.connect()
    door.say(unheard, meet(NAME))
    assert refusal(unheard)


def test_introductions_count_as_the_users_time() -> None:
    door = Door()
    sock = door.connect()
    door.say(sock, HELLO)
    before = door.listener.accounts.of(1000).budget.credit_at(door.loop.now)
    for _ in range(10):
        door.say(sock, meet(NAME))
    left = door.listener.accounts.of(1000).budget.credit_at(door.loop.now)
    assert before - left >= 10 * 0.0005
