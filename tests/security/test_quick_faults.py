"""A fault with one connection ends that one: no other, no descriptor lost, no flood of lines."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable
from typing import Any

import pytest
from _gpulease import lib

from leased.connections import connection as connection_room
from leased.connections import limits
from leased.node.client_connection import ClientConnection
from leased.wire import header
from tests.connections.test_limits import HELLO, REQUEST, Door
from tests.fuzz.fakes import FakeSocket


class Unlucky(Exception):
    """Something that nobody has thought of."""


def raises(*_: object) -> Any:
    raise Unlucky


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "gpu-leased"]


def test_a_connection_that_cannot_be_made_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    door = Door()
    timers, before = len(door.loop.timers), door.loop.now
    monkeypatch.setattr(connection_room, "process_id", raises)
    socks = [door.connect_in_time(pause_s=0) for _ in range(12_000)]
    door.loop.advance(1)
    passed = door.loop.now - before
    assert not any(sock.open for sock in socks)
    assert door.listener.connections == set()
    assert list(door.loop.readers) == [door.listening]
    assert len(door.loop.timers) == timers
    assert len(lines(caplog)) <= limits.LINES_BURST + limits.LINES_PER_S * passed
    monkeypatch.undo()
    other = door.connect(uid=1001)
    door.say(other, HELLO)
    assert other.open


def test_a_reader_that_the_loop_does_not_take(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door()
    monkeypatch.setattr(door.loop, "call_later", raises)
    sock = door.connect()
    assert not sock.open
    assert list(door.loop.readers) == [door.listening]


def break_receive(connection: ClientConnection, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(connection, "received", raises)


def break_end(connection: ClientConnection, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(connection, "received", raises)
    patch.setattr(connection.leases.clients, "detach", raises)


@pytest.mark.parametrize("break_it", [break_receive, break_end])
def test_a_fault_while_a_client_is_served(
    break_it: Callable[[ClientConnection, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    door = Door()
    sock, other = door.connect(), door.connect(uid=1001)
    for each in (sock, other):
        door.say(each, HELLO)
    (broken,) = [c for c in door.listener.connections if c.peer.uid == 1000]
    assert isinstance(broken, ClientConnection)
    break_it(broken, monkeypatch)
    door.say(sock, REQUEST)
    assert not sock.open
    assert [c.peer.uid for c in door.listener.connections] == [1001]
    assert len(lines(caplog)) == 1
    monkeypatch.undo()
    door.say(other, REQUEST)
    assert other.open
    assert header.check_header(other.outbox[-1]) == lib.GL_GRANT


def test_a_fault_in_a_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    door = Door()
    sock = door.connect()
    (connection,) = door.listener.connections
    monkeypatch.setattr(connection, "end_if_idle", raises)
    door.loop.advance(limits.HELLO_S + 1)
    assert not sock.open
    assert door.listener.connections == set()


def test_faults_of_many_connections_are_a_few_lines(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(time, "thread_time", lambda: 0.0)  # what may be said, not its time
    door = Door()
    monkeypatch.setattr(ClientConnection, "received", raises)
    began = door.loop.time()
    for _ in range(1000):
        door.say(door.connect_in_time(), REQUEST)
        door.loop.advance(0.001)
    door.loop.advance(limits.HELLO_S)
    assert door.listener.connections == set()
    passed = door.loop.time() - began
    assert 0 < len(lines(caplog)) <= limits.LINES_BURST + limits.LINES_PER_S * passed + 1


def test_a_process_without_a_job_is_charged_from_the_first_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door()
    spent = [0.0]

    def thread_time() -> float:
        spent[0] += 0.001  # so to accept takes 1 ms
        return spent[0]

    monkeypatch.setattr(time, "thread_time", thread_time)
    before = door.loop.now
    for _ in range(200):
        door.connect_in_time(pause_s=0)
    passed = door.loop.now - before
    assert passed > (0.1 - limits.BURST_S) / limits.SHARE, "its accepts are counted"
    late = door.connect_in_time(pause_s=0)
    late.inbox.append(HELLO)
    door.loop.read(late)
    assert not late.outbox, "what it says waits"
    stranger = door.connect_in_time(1001, 0)
    door.say(stranger, HELLO)
    assert stranger.outbox, "nobody else does"


def test_a_kept_connection_that_cannot_be_taken_is_the_only_one_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door = Door()
    taken = [FakeSocket(os.getpid(), 1000), FakeSocket(os.getpid(), 1000)]
    made = []

    def sometimes(pid: int) -> Any:
        made.append(pid)
        return raises() if len(made) == 1 else None

    monkeypatch.setattr(connection_room, "process_id", sometimes)
    for sock in taken:
        connection = door.listener.take(sock)  # type: ignore[arg-type]
        if connection is not None:
            assert isinstance(connection, ClientConnection)
            connection.isolated(connection.resync)
    assert [sock.open for sock in taken] == [False, True]
    assert header.check_header(taken[1].outbox[0]) == lib.GL_RESYNC
