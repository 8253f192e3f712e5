"""gpu-leased-copies by itself: requests that come while others are under way."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from leased.copies import memory_file, stored_files
from leased.copies.keeper import LONGEST, Keeper, Served
from leased.copies.memory_file import UNIT, MemoryFile
from leased.copies.pool import PIECES
from leased.copies.turns import Slice
from tests.conftest import ROOT
from tests.copies.keeper import Keeper as Program

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

    def make(self, size: int, huge: bool, _: Slice) -> MemoryFile:
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
    end(keeper)


def end(keeper: Keeper) -> None:
    finish(keeper)
    for file in keeper.files.values():
        os.close(file.descriptor)


def finish(keeper: Keeper) -> None:
    """Wait until it has made and freed all that it was told to."""
    keeper.makers.shutdown()
    keeper.ender.shutdown()


def request(op: str, size: int = 0, **more: int) -> dict[str, Any]:
    return {"op": op, "name": NAME, "bytes": size, "huge": False, "user": 1, **more}


def tell(daemon: socket.socket, op: str, size: int = 0, **more: int) -> None:
    daemon.send(json.dumps(request(op, size, **more)).encode())


def answer(daemon: socket.socket) -> int:
    """How large the memory is that the keeper has made."""
    return int(said(daemon, "bytes")["bytes"])


def said(daemon: socket.socket, what: str) -> dict[str, Any]:
    """The next packet that has this field."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(daemon, LONGEST, 1)
        for descriptor in descriptors:
            os.close(descriptor)
        found: dict[str, Any] = json.loads(data)
        if what in found:
            return found


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
    assert said(daemon, "files") == {"files": [], "last": True}
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
    assert said(daemon, "files") == {"files": [], "last": True}
    assert slow.ended.wait(60)


def test_what_is_made_for_a_daemon_that_has_gone_is_not_kept(slow: Slow) -> None:
    """The next daemon is told what there is, and hears of nothing that is ready after that."""
    slow.expect(UNIT)
    keeper = Keeper({})
    former, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    tell(former, "make", UNIT)
    former.close()
    keeper.serve(its)
    slow.begun[UNIT].wait(60)
    daemon, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    tell(daemon, "list")
    daemon.shutdown(socket.SHUT_WR)
    keeper.serve(its)
    assert said(daemon, "files") == {"files": [], "last": True}
    daemon.close()
    slow.may_end[UNIT].set()
    finish(keeper)
    assert not keeper.files
    assert slow.ended.is_set()
    end(keeper)


class Turns:
    """The keeper's lock. Before it is taken for the nth time, something else happens."""

    def __init__(self, keeper: Keeper, nth: int, act: Callable[[], None]):
        self.lock, self.left, self.act = keeper.lock, nth, act
        keeper.lock = self  # type: ignore[assignment]

    def __enter__(self) -> None:
        self.left -= 1
        if not self.left:
            self.act()
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


@pytest.mark.parametrize("nth", range(1, 5))
def test_what_is_asked_for_again_and_ends_meanwhile_is_ended_once(
    monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """Ended twice it would take the pages of whoever has a file of the same number by then."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    first = MemoryFile(os.memfd_create("test"), UNIT)
    ended: list[MemoryFile] = []

    def ended_file(file: MemoryFile) -> None:
        ended.append(file)

    keeper = Keeper({NAME: first})
    monkeypatch.setattr(memory_file, "make", lambda *_: MemoryFile(os.memfd_create("test"), UNIT))
    monkeypatch.setattr(MemoryFile, "end", ended_file)
    for pool in (keeper.makers, keeper.ender):
        monkeypatch.setattr(pool, "submit", lambda work, *given: work(*given))
    Turns(keeper, nth, lambda: keeper.handle(its, request("end")))
    keeper.handle(its, request("make", UNIT))
    keeper.handle(its, request("end"))
    assert sorted(map(id, ended)) == sorted({id(file) for file in ended})
    assert first in ended
    for file in ended:
        os.close(file.descriptor)
    ours.close()
    its.close()
    end(keeper)


def test_a_name_that_is_used_again_stays_with_the_service_manager(
    slow: Slow, daemon: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It forgets by name, so it must not hear of the end of the one after the other is stored."""
    kept: dict[str, int] = {}
    monkeypatch.setattr(stored_files, "store", lambda name, file: kept.update({name: file.bytes}))
    monkeypatch.setattr(stored_files, "forget", lambda name: kept.pop(name, None))
    slow.expect(2 * UNIT, UNIT)
    slow.may_end[UNIT].set()
    tell(daemon, "make", 2 * UNIT)
    slow.begun[2 * UNIT].wait(60)
    tell(daemon, "end")
    tell(daemon, "make", UNIT)
    assert answer(daemon) == UNIT
    slow.may_end[2 * UNIT].set()
    assert slow.ended.wait(60)
    assert kept == {NAME: UNIT}


def test_an_answer_says_which_request_it_is_for(slow: Slow, daemon: socket.socket) -> None:
    slow.expect(UNIT)
    slow.may_end[UNIT].set()
    for number in (7, 8):
        tell(daemon, "make", UNIT, ask=number)
        assert said(daemon, "ask")["ask"] == number


def test_what_came_on_an_older_connection_is_done_first(slow: Slow) -> None:
    """The keeper was stopped while a daemon asked it and was replaced by another, which asks the
    same: the answer is for that one, though the keeper begins to serve it before the first."""
    slow.expect(UNIT)
    slow.may_end[UNIT].set()
    keeper, goes_on = Keeper({}), threading.Event()
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in range(2)]
    (old, its_old), (new, its_new) = pairs
    tell(old, "make", UNIT, ask=1)
    old.close()

    def serve_late() -> None:
        goes_on.wait(60)
        keeper.serve(its_old)

    late = threading.Thread(target=serve_late)
    late.start()
    serving = threading.Thread(target=keeper.serve, args=(its_new, Served(its_old, late)))
    serving.start()
    with new:
        new.settimeout(60)
        tell(new, "list")
        tell(new, "make", UNIT, ask=7)
        goes_on.set()
        said(new, "files")
        assert said(new, "bytes")["ask"] == 7
    serving.join()
    late.join()
    finish(keeper)
    keeper.files[NAME].end()


def test_a_second_one_leaves_the_first_its_socket(short_dir: Path) -> None:
    with Program(short_dir) as first:
        own = first.path.stat().st_ino
        command = [sys.executable, "-m", "leased.copies.keeper", "--socket", str(first.path)]
        second = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        said = f"another gpu-leased-copies uses {short_dir}; end it, or let this one be"
        assert (second.returncode, second.stderr) == (1, f"gpu-leased-copies: {said}\n")
        assert first.path.stat().st_ino == own
