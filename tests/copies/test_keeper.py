"""gpu-leased-copies by itself: requests that come while others are under way."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from leased.copies import memory_file
from leased.copies.keeper import LONGEST, Keeper
from leased.copies.memory_file import UNIT, MemoryFile
from leased.copies.pool import PIECES
from tests.conftest import ROOT

NAME = "1.2.3.4"


@dataclass
class Slow:
    """Files that are made when the test lets them, by their size."""

    begun: dict[int, threading.Event] = field(default_factory=dict)
    may_end: dict[int, threading.Event] = field(default_factory=dict)
    ended: threading.Event = field(default_factory=threading.Event)

    def expect(self, *sizes: int) -> None:
        for size in sizes:
            self.begun[size], self.may_end[size] = threading.Event(), threading.Event()

    def make(self, size: int, huge: bool) -> MemoryFile:
        assert not huge
        self.begun[size].set()
        self.may_end[size].wait(60)
        return MemoryFile(os.memfd_create("test"), size)

    def end(self, file: MemoryFile) -> None:
        os.close(file.descriptor)
        self.ended.set()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    made = Slow()
    monkeypatch.setattr(memory_file, "make", made.make)
    monkeypatch.setattr(MemoryFile, "end", lambda file: Slow.end(made, file))
    return made


@pytest.fixture
def daemon() -> Iterator[socket.socket]:
    """The daemon's end of a connection with a keeper."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(60)
    keeper = Keeper({})
    serving = threading.Thread(target=keeper.serve, args=(its,))
    serving.start()
    yield ours
    ours.close()
    serving.join()
    keeper.makers.shutdown()
    for file in keeper.files.values():
        os.close(file.descriptor)


def tell(daemon: socket.socket, op: str, size: int = 0) -> None:
    daemon.send(json.dumps({"op": op, "name": NAME, "bytes": size, "huge": False}).encode())


def answer(daemon: socket.socket) -> int:
    """How large the memory is that the keeper has made."""
    data, (descriptor,), _, _ = socket.recv_fds(daemon, LONGEST, 1)
    os.close(descriptor)
    return int(json.loads(data)["bytes"])


def test_its_service_keeps_a_descriptor_of_each_piece_that_there_may_be() -> None:
    """What systemd did not keep would count for nobody once keeper and daemon are started again."""
    unit = (ROOT / "packaging" / "gpu-leased-copies.service.in").read_text()
    said = dict(line.split("=", 1) for line in unit.splitlines() if "=" in line)
    assert int(said["FileDescriptorStoreMax"]) >= PIECES
    assert int(said["LimitNOFILE"]) > PIECES


def test_a_name_that_is_used_again_is_for_what_was_asked_last(
    slow: Slow, daemon: socket.socket
) -> None:
    """A process gives a large piece back while it is being made, and asks for a small one under
    the same number. The small one counts, so it must not get the large one."""
    slow.expect(4 * UNIT, UNIT)
    tell(daemon, "make", 4 * UNIT)
    slow.begun[4 * UNIT].wait(60)
    tell(daemon, "end")
    tell(daemon, "make", UNIT)
    slow.begun[UNIT].wait(60)
    slow.may_end[4 * UNIT].set()
    while not slow.ended.wait(0.01) and not select.select([daemon], [], [], 0)[0]:
        pass
    slow.may_end[UNIT].set()
    assert answer(daemon) == UNIT


def test_what_is_ended_while_it_is_made_is_not_kept(slow: Slow, daemon: socket.socket) -> None:
    slow.expect(UNIT)
    tell(daemon, "make", UNIT)
    slow.begun[UNIT].wait(60)
    tell(daemon, "end")
    tell(daemon, "list")
    assert json.loads(daemon.recv(LONGEST)) == {"files": [], "last": True}
    slow.may_end[UNIT].set()
    assert slow.ended.wait(60)


def test_what_is_ended_is_not_listed_even_before_its_pages_are_free(
    slow: Slow, daemon: socket.socket
) -> None:
    slow.expect(UNIT)
    slow.may_end[UNIT].set()
    tell(daemon, "make", UNIT)
    assert answer(daemon) == UNIT
    tell(daemon, "end")
    tell(daemon, "list")
    assert json.loads(daemon.recv(LONGEST)) == {"files": [], "last": True}
    assert slow.ended.wait(60)
