"""Daemon and interposer of different releases: what each makes of what it does not know."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from _gpulease import ffi, lib

from leased.connections import limits
from leased.wire import client_messages, daemon_messages, header
from tests.connections.test_limits import HELLO, REQUEST, UUID, Door, kinds, refusal
from tests.shim.lease import test_waiting
from tests.shim.lease.test_waiting import complaint
from tests.support import swap_programs as swap
from tests.support.fake_daemon import FakeDaemon
from tests.support.programs import line, tell
from tests.support.wire_client import message

daemon, uuid = swap.daemon, swap.uuid
program, swapping = test_waiting.program, swap.program
KNOWN = client_messages.READERS
LATER = 200  # a type of message that no release has yet


def header_of(kind: int, version: int = header.VERSION, more: bytes = b"") -> bytes:
    made = bytearray(REQUEST[: header.SIZE]) + more
    made[6:8] = kind.to_bytes(2, "little")
    made[8:12] = len(made).to_bytes(4, "little")
    return header.in_version(bytes(made), version)


def versions(sock: object) -> set[int]:
    return {header.version_of(data) for data in sock.outbox}  # type: ignore[attr-defined]


# -- the daemon ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [0, max(KNOWN) + 1, 64, lib.GL_GRANT, LATER, 65535])
@pytest.mark.parametrize("more", [b"", bytes(40), bytes(900)])
def test_the_daemon_ignores_what_it_does_not_know(kind: int, more: bytes) -> None:
    door = Door()
    sock = door.connect()
    door.say(sock, header_of(kind, more=more))
    assert kinds(sock) == []
    door.say(sock, HELLO)
    assert kinds(sock) == [lib.GL_WELCOME]
    door.say(sock, header_of(kind, more=more))
    assert kinds(sock) == []
    door.say(sock, REQUEST)
    assert kinds(sock) == [lib.GL_GRANT]
    door.say(sock, header_of(kind, more=more))
    assert kinds(sock) == []
    assert [client.held for client in door.tenant.clients] == [1]


def test_a_process_that_sends_nothing_else_is_silent() -> None:
    door = Door()
    sock = door.connect()
    for _ in range(int(limits.HELLO_S) + 2):
        door.say(sock, header_of(LATER))
        door.loop.advance(1)
    assert not sock.open


def test_ignored_messages_count_as_their_users_time() -> None:
    door = Door()
    sock = door.connect()
    before = door.listener.accounts.of(1000).budget.credit_at(door.loop.now)
    for _ in range(100):
        door.say(sock, header_of(LATER))
    assert door.listener.accounts.of(1000).budget.credit < before - 100 * limits.EVENT_COST_S


def test_the_daemon_ignores_bits_that_it_does_not_know() -> None:
    door = Door()
    sock = door.connect()
    door.say(sock, message(lib.GL_HELLO, flags=2**32 - 1))
    assert kinds(sock) == [lib.GL_WELCOME, lib.GL_GRANT]
    door.say(sock, message(lib.GL_RELEASED, epoch=1, flags=2**32 - 1))
    assert kinds(sock) == [lib.GL_GRANT]


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_a_known_type_of_another_length_is_refused(kind: int) -> None:
    door = Door()
    sock = door.connect()
    if kind != lib.GL_HELLO:
        door.say(sock, HELLO)
    door.say(sock, header_of(kind, more=bytes(7)))
    assert "bytes" in refusal(sock)


@pytest.mark.parametrize("version", [0, header.VERSION + 1, 65535])
def test_a_version_that_is_not_served_is_refused_so_that_both_can_read_it(version: int) -> None:
    door = Door()
    sock = door.connect()
    door.say(sock, header.in_version(HELLO, version))
    reply = ffi.from_buffer("struct gl_refused *", sock.outbox[-1])
    assert reply.header.version == min(version, header.VERSION)
    assert reply.header.type == lib.GL_REFUSED
    assert reply.code == lib.GL_REFUSED_VERSION
    reason = ffi.string(reply.reason).decode()
    assert f"its interposer speaks version {version} of the protocol" in reason
    remedy = "submit the job again" if version < header.VERSION else "restart gpu-leased"
    assert remedy in reason
    assert not sock.open


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> int:
    """This daemon is the first of the next version and serves the one before; the old one."""
    old = header.VERSION
    monkeypatch.setattr(header, "VERSION", old + 1)
    return old


def test_the_version_before_is_served_in_its_own_words(next_release: int) -> None:
    door = Door()
    old, new = door.connect(), door.connect()
    door.say(old, header.in_version(HELLO, next_release))
    door.say(new, header.in_version(HELLO, next_release + 1))
    assert versions(old) == {next_release}
    assert versions(new) == {next_release + 1}
    for sock, version in ((old, next_release), (new, next_release + 1)):
        door.say(sock, header.in_version(REQUEST, version))
        assert header.check_header(sock.outbox[-1]) == lib.GL_GRANT
        assert versions(sock) == {version}
    door.leases.tenants.close(7)
    assert versions(old) == {next_release}


def test_kept_connections_are_asked_anew_in_every_version(next_release: int) -> None:
    door = Door()
    sock = door.connect()
    (connection,) = door.listener.connections
    connection.resync()  # type: ignore[attr-defined]
    asked = [(header.version_of(data), header.check_header(data)) for data in sock.outbox]
    assert asked == [(next_release, lib.GL_RESYNC), (next_release + 1, lib.GL_RESYNC)]
    sock.outbox.clear()
    door.say(sock, header.in_version(HELLO, next_release))
    assert versions(sock) == {next_release}


# -- the interposer --------------------------------------------------------------------------

STEPS = """
ok(spin(1000)); ok(d.cuCtxSynchronize())
say("ready"); wait()
ok(spin(1000)); ok(d.cuCtxSynchronize())
say("again"); wait()
"""


def test_the_interposer_ignores_what_it_does_not_know(
    swapping: swap.Program, daemon: FakeDaemon
) -> None:
    daemon.auto = False
    job = swapping(STEPS)
    client = swap.client_of(daemon, job)
    client.until("a request", lambda: client.wants)
    odd = [
        header_of(LATER),
        header_of(LATER, more=bytes(900)),
        header_of(0),
        header_of(lib.GL_HELLO),
        header_of(lib.GL_GRANT, more=bytes(7)),
        header_of(lib.GL_REFUSED, more=bytes(7)),
        header_of(lib.GL_GRANT, header.VERSION + 1, bytes(ffi.sizeof("struct gl_grant") - 16)),
        b"",
        b"x",
        bytes(1024),
    ]
    for data in odd:
        if data:
            client.send(data)
    client.grant()
    assert line(job) == "ready"
    for data in odd:
        if data:
            client.send(data)
    tell(job)
    assert line(job) == "again"
    assert client.wants == 1, "it has had its lease all the time"
    client.revoke()
    tell(job)
    swap.finish(job)


def test_the_interposer_ignores_bits_that_it_does_not_know(
    swapping: swap.Program, daemon: FakeDaemon
) -> None:
    daemon.auto = False
    job = swapping(STEPS)
    client = swap.client_of(daemon, job)
    client.until("a request", lambda: client.wants)
    again = ffi.new("struct gl_welcome *", daemon.welcome[0])
    again.flags |= 0xFFFFFFF0
    client.send(bytes(ffi.buffer(again)))
    grant = ffi.new("struct gl_grant *")
    ffi.buffer(grant)[:] = daemon_messages.grant(1, {})
    client.epoch = 1
    client.send(bytes(ffi.buffer(grant)))
    assert line(job) == "ready"
    tell(job)
    assert line(job) == "again"
    client.revoke()
    tell(job)
    swap.finish(job)


def test_a_daemon_that_is_not_updated_yet_is_waited_for(
    program: test_waiting.Program, short_dir: Path
) -> None:
    updated: list[bool] = []

    def serve(connection: socket.socket) -> None:
        connection.recv(header.MAX_MESSAGE)
        if not updated:
            connection.send(header.in_version(daemon_messages.refused(4, "of another release"), 0))
            connection.close()
            return
        connection.send(daemon_messages.welcome(daemon_messages.Gang(1, False, {UUID: 64 << 20})))
        connection.send(daemon_messages.grant(1, {}))
        kept.append(connection)

    kept: list[socket.socket] = []
    with test_waiting.Door(short_dir / "door", serve) as door:
        process = program(door.path)
        assert line(process) == "asks"
        assert "it is of an older release than this job's library" in complaint(process)
        assert door.accepted < 100
        updated.append(True)
        assert line(process) == "CUDA_SUCCESS"
