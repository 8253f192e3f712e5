"""Descriptors on their way: one of each connection at most; too many of all are nobody's fault."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator

import pytest

from leased.leasing.introductions import Introductions
from leased.leasing.tenant import Client
from leased.processes.identity import unread_of
from leased.wire import client_messages
from tests.fuzz.fakes import FakeLoop


class Peer(Client):
    """The daemon's end of a real connection, and `theirs`, the other one."""

    name, keeper = b"n" * 16, False

    def __init__(self) -> None:
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(ours, FakeLoop())  # type: ignore[arg-type]

    def closed(self) -> None:
        self.theirs.close()

    def files(self) -> int:
        """How many descriptors came with the next message."""
        _, files, _, _ = socket.recv_fds(self.theirs, 1024, 8)
        for file in files:
            os.close(file)
        return len(files)


@pytest.fixture
def peers() -> Iterator[tuple[Peer, Peer]]:
    both = Peer(), Peer()
    yield both
    for peer in both:
        peer.close()


def test_the_next_descriptor_follows_when_the_last_one_was_read(peers: tuple[Peer, Peer]) -> None:
    peer = peers[0]
    assert peer.takes_file()
    assert peer.send_file(b"first", 0)
    for _ in range(3):
        assert not peer.takes_file()
        assert not peer.send_file(b"second", 0)
    peer.send(b"no descriptor")
    assert [peer.files(), peer.files()] == [1, 0]
    assert peer.send_file(b"second", 0)
    assert peer.files() == 1
    assert peer.open


@pytest.mark.parametrize("silent", ["asker", "other"])
def test_who_does_not_read_meets_nobody_more(peers: tuple[Peer, Peer], silent: str) -> None:
    """Each introduction puts two descriptors on their way. The one that reads gets no more."""
    asker, other = peers
    node, asker.name = Introductions(lambda: 0, restarted=False), b"a" * 16
    kin = [(True, one) for one in peers]
    for time in range(10):
        met = node.meet(kin, asker, client_messages.Meet(other.name, 1, (3, 4)))
        assert (met is not None) == (time == 0)
        if silent == "other":
            assert asker.files() == (time == 0)
        elif time == 0:
            assert other.files() == 1
    assert unread_of((asker if silent == "other" else other).sock) == 0
    assert (other if silent == "other" else asker).files() == 1


@pytest.mark.parametrize(
    ("fault", "stays"),
    [
        *((errno.ETOOMANYREFS, True), (errno.EAGAIN, False)),
        *((errno.EPIPE, False), (errno.ECONNRESET, False)),
    ],
)
def test_too_many_of_all_are_no_fault_of_a_connection(
    peers: tuple[Peer, Peer],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    fault: int,
    stays: bool,
) -> None:
    """Others have put them there. It is as if it had not been tried. Nor is one that ended."""
    caplog.set_level("INFO")

    def fails(*_: object) -> None:
        raise OSError(fault, os.strerror(fault))

    peer = peers[0]
    with monkeypatch.context() as patch:
        patch.setattr(socket, "send_fds", fails)
        assert peer.send_file(b"file", 0) is not stays
    peer.loop.run_soon()  # type: ignore[attr-defined]
    assert (peer.open, peer.dropped) == (stays, not stays)
    assert ("is dropped" in caplog.text) == (fault == errno.EAGAIN)
    if stays:
        assert peer.send_file(b"file", 0)
        assert peer.files() == 1
