"""gpu-leased's connection with the keeper, and what the daemon believes after a new one."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leased.copies import keeper_link, node_memory
from leased.copies.asks import AT_ONCE, OF_A_JOB
from leased.copies.keeper_link import LONGEST, SOCKET, KeeperLink
from leased.copies.node_memory import UNIT, NodeMemory
from leased.copies.pool import LARGEST, Job, Key
from leased.processes.identity import process_id
from leased.wire import client_messages

MANY = 3000  # more than the kernel keeps of a connection that nobody reads


class SlowKeeper:
    """A keeper that reads and answers when it is told to."""

    def __init__(self, path: Path):
        self.listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listening.bind(str(path))
        self.listening.listen()
        self.connections: list[socket.socket] = []

    def accept(self) -> None:
        self.connections.append(self.listening.accept()[0])
        self.connections[-1].settimeout(60)

    def read(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self.connections[-1].recv(LONGEST))
        return said

    def list(self, files: dict[str, int]) -> None:
        assert self.read() == {"op": "list"}
        said = {"files": list(files.items()), "last": True}
        self.connections[-1].send(json.dumps(said).encode())

    def make(self) -> str:
        """Make what is asked for next, and say under which name."""
        return str(self.made()["name"])

    def made(self) -> dict[str, Any]:
        """The same: all that was asked."""
        asked = self.read()
        assert asked["op"] == "make"
        self.answer(asked)
        return asked

    def answer(self, asked: dict[str, Any]) -> None:
        """Send a file of the size that was asked for."""
        descriptor = os.memfd_create("test")
        os.ftruncate(descriptor, asked["bytes"])
        answer = {name: asked[name] for name in ("name", "ask", "bytes", "huge")} | {"took": 0.0}
        socket.send_fds(self.connections[-1], [json.dumps(answer).encode()], [descriptor])
        os.close(descriptor)

    def end_connection(self) -> None:
        self.connections.pop().close()

    def close(self) -> None:
        for each in (*self.connections, self.listening):
            each.close()


async def is_told_to_end(keeper: SlowKeeper, name: str) -> None:
    """A daemon that connects again and hears that the keeper has this memory."""
    await asyncio.to_thread(keeper.accept)
    await asyncio.to_thread(keeper.list, {name: UNIT})
    assert await asyncio.to_thread(keeper.read) == {"op": "end", "name": name}


class Process:
    """This process, as a connection shows it."""

    def __init__(self) -> None:
        self.sock, self.other_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.process = process_id(os.getpid())
        self.heard = asyncio.Event()
        self.got: list[int] = []  # bytes of the files that have come
        self.open = self.reads = True
        self.offered: asyncio.Queue[bool] = asyncio.Queue()  # of each file whether it took it

    def send(self, message: bytes) -> None:
        del message
        self.heard.set()

    def takes_file(self) -> bool:
        return self.reads

    def send_file(self, message: bytes, descriptor: int) -> bool:
        if self.reads:
            self.got.append(os.fstat(descriptor).st_size)
            self.send(message)
        self.offered.put_nowait(self.reads)
        return self.reads

    def say(self, words: str) -> None:
        raise AssertionError(words)

    def close(self) -> None:
        self.sock.close()
        self.other_end.close()


def connected(path: Path, files: dict[str, int]) -> tuple[SlowKeeper, KeeperLink, NodeMemory]:
    """A keeper that has these files, and the memory of a daemon that has come to it just now."""
    keeper, loop = SlowKeeper(path), asyncio.get_running_loop()
    link = KeeperLink(path, loop)
    memory = NodeMemory(link, loop, lambda: 1 << 40)
    link.connect()
    keeper.accept()
    keeper.list(files)
    return keeper, link, memory


def close(*parts: SlowKeeper | NodeMemory | Process) -> None:
    for part in parts:
        part.close()


async def test_a_keeper_that_is_slow_is_not_taken_for_one_that_has_ended(short_dir: Path) -> None:
    """It hears all, in order, on the same connection."""
    keeper = SlowKeeper(short_dir / SOCKET)
    link = KeeperLink(short_dir / SOCKET, asyncio.get_running_loop())
    link.connect()
    keeper.accept()
    for n in range(MANY):
        link.end(str(n))
    assert await asyncio.to_thread(keeper.read) == {"op": "list"}
    ended = [(await asyncio.to_thread(keeper.read))["name"] for _ in range(MANY)]
    assert ended == [str(n) for n in range(MANY)]
    assert link.connected
    link.close()
    keeper.close()


async def test_nobody_waits_for_a_keeper_that_hangs(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes have memory of their own. What the keeper makes of it all the same is ended."""
    monkeypatch.setattr(keeper_link, "SILENT_S", 0.05)
    monkeypatch.setattr(keeper_link, "RETRY_S", 0.05)
    keeper, link, memory = connected(short_dir / SOCKET, {})
    asker, said = Process(), list[str]()
    monkeypatch.setattr(asker, "say", said.append)
    for number in range(AT_ONCE + 1):
        memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(number, UNIT))
    await asker.heard.wait()
    assert memory.pool.total == 0
    assert said == ["gets no host memory for copies: gpu-leased-copies does not answer"]
    asker.heard.clear()
    memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(AT_ONCE + 1, UNIT))
    await asker.heard.wait()
    heard = [keeper.read() for _ in range(OF_A_JOB + AT_ONCE + 2)]
    made = [each for each in heard if each["op"] == "make"]
    for asked in made:
        keeper.answer(asked)
    assert len(made) == OF_A_JOB
    assert {each["name"] for each in made} < {e["name"] for e in heard if e["op"] == "end"}
    memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(1, UNIT))
    await asyncio.to_thread(keeper.make)
    assert await asker.offered.get()
    assert memory.pool.total == UNIT
    assert link.connected
    close(memory, asker, keeper)


async def test_what_was_given_back_does_not_count_again_after_a_new_connection(
    short_dir: Path,
) -> None:
    """A keeper that ended before it had read what it was told has that memory still. So it is
    told once more, and the process, which lives on, does not have it."""
    keeper, _, memory = connected(short_dir / SOCKET, {})
    asker = Process()
    memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(1, UNIT))
    name = keeper.make()
    await asker.heard.wait()
    memory.give(asker, 1, client_messages.HostGive(1))
    assert memory.pool.total == 0
    keeper.end_connection()
    await is_told_to_end(keeper, name)
    assert memory.pool.total == 0
    close(memory, asker, keeper)


async def test_who_asks_again_for_more_gets_what_was_counted(short_dir: Path) -> None:
    """The first request has not been sent, since as many as may are under way."""
    keeper, link, memory = connected(short_dir / SOCKET, {})
    asker = Process()
    for number in range(AT_ONCE + 1):
        memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(number, UNIT))
    for _ in range(MANY):
        memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(AT_ONCE, LARGEST))
    assert not link.unsent, "it is asked for once"
    made = [await asyncio.to_thread(keeper.made) for _ in range(AT_ONCE + 1)]
    assert sum(each["bytes"] for each in made) == memory.pool.total == (AT_ONCE + 1) * UNIT
    close(memory, asker, keeper)


async def test_a_process_that_does_not_read_gets_its_memory_when_it_does(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile nobody asks the keeper again. What it has given back by then, it does not get."""
    monkeypatch.setattr(node_memory, "UNREAD_S", 0.01)
    keeper, _, memory = connected(short_dir / SOCKET, {})
    asker = Process()
    asker.reads = False
    for number in (1, 2, 3):
        memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(number, number * UNIT))
        await asyncio.to_thread(keeper.make)
        assert not await asker.offered.get()
    memory.give(asker, 1, client_messages.HostGive(2))
    assert not asker.got
    asker.reads = True
    said = [await asyncio.to_thread(keeper.read) for _ in range(3)]
    assert [each["op"] for each in said] == ["end", "make", "make"]
    for asked in said[1:]:
        keeper.answer(asked)
        assert await asker.offered.get()
    assert asker.got == [UNIT, 3 * UNIT]
    assert memory.pool.total == 4 * UNIT
    close(memory, asker, keeper)


async def test_what_a_daemon_before_had_made_for_a_process_counts(short_dir: Path) -> None:
    process = process_id(os.getpid())
    assert process
    files = {f"1.{process.pid}.{process.start}.7": UNIT, f"2.{process.pid}.1.7": UNIT}
    keeper, _, memory = connected(short_dir / SOCKET, files)
    ended = await asyncio.to_thread(keeper.read)
    assert ended == {"op": "end", "name": f"2.{process.pid}.1.7"}
    assert memory.of_job(1) == memory.pool.total == UNIT
    close(memory, keeper)


async def test_an_answer_that_crosses_a_give_back_is_not_for_the_next_request(
    short_dir: Path,
) -> None:
    """The process gives a large piece back before it has come, and asks for a small one under
    the same number. The keeper has sent the large one before it hears of either."""
    keeper, link, memory = connected(short_dir / SOCKET, {})
    asker = Process()
    memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(1, 4 * UNIT))
    large = await asyncio.to_thread(keeper.read)
    memory.give(asker, 1, client_messages.HostGive(1))
    memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(1, UNIT))
    keeper.answer(large)
    assert await asyncio.to_thread(keeper.read) == {"op": "end", "name": large["name"]}
    small = await asyncio.to_thread(keeper.made)
    await asker.heard.wait()
    assert (small["bytes"], asker.got) == (UNIT, [UNIT])
    assert memory.pool.total == UNIT
    assert not link.asks.by_name
    close(memory, asker, keeper)


async def test_what_is_given_back_before_the_keeper_has_said_what_it_has_is_ended(
    short_dir: Path,
) -> None:
    """After a restart of both services a process may repeat what the daemon before has not
    answered sooner than the keeper is there."""
    path, process, asker = short_dir / SOCKET, process_id(os.getpid()), Process()
    assert process
    names = {n: f"1.{process.pid}.{process.start}.{n}" for n in (7, 8)}
    keeper, loop = SlowKeeper(path), asyncio.get_running_loop()
    memory = NodeMemory(KeeperLink(path, loop), loop, lambda: 1 << 40)
    memory.link.connect()
    keeper.accept()
    memory.give(asker, 1, client_messages.HostGive(7))
    memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(8, UNIT))
    await asyncio.to_thread(keeper.list, {names[7]: UNIT, names[8]: 4 * UNIT})
    said = [await asyncio.to_thread(keeper.read) for _ in range(2)]
    assert {each["op"]: each["name"] for each in said} == {"make": names[8], "end": names[7]}
    assert memory.pool.bytes == {Key(1, process, 8): 4 * UNIT}, "what it has counts"
    close(memory, asker, keeper)


async def test_what_is_refused_before_the_keeper_has_said_what_it_has_is_ended(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A keeper that ends before its first answer may have made what it was asked for."""
    monkeypatch.setattr(keeper_link, "PATIENCE_S", 0.0)
    path, asker, loop = short_dir / SOCKET, Process(), asyncio.get_running_loop()
    monkeypatch.setattr(asker, "say", lambda _: None)
    keeper = SlowKeeper(path)
    memory = NodeMemory(KeeperLink(path, loop), loop, lambda: 1 << 40)
    memory.link.connect()
    keeper.accept()
    memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(7, UNIT))
    (name,) = memory.link.asks.by_name
    keeper.close()
    path.unlink()
    await asker.heard.wait()
    assert memory.pool.total == 0
    keeper = SlowKeeper(path)
    await is_told_to_end(keeper, name)
    assert memory.pool.total == 0
    close(memory, asker, keeper)


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """A process that can open no more files than it has open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(file.name) for file in Path("/proc/self/fd").iterdir())
    spare = [os.open(os.devnull, os.O_RDONLY)]
    while spare[-1] <= highest:
        spare.append(os.open(os.devnull, os.O_RDONLY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (spare[-1] + 1, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in spare:
            os.close(descriptor)


async def test_memory_whose_descriptor_cannot_be_taken_is_ended(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The daemon has no descriptors left when the keeper sends it."""
    keeper, _, memory = connected(short_dir / SOCKET, {})
    asker, said = Process(), list[str]()
    monkeypatch.setattr(asker, "say", said.append)
    memory.take(asker, Job(1, 1000, 1 << 40), client_messages.HostTake(1, UNIT))
    name = keeper.make()
    with no_descriptors():
        await asker.heard.wait()
    assert not asker.got
    assert "descriptors" in said[0]
    assert memory.pool.total == 0
    assert await asyncio.to_thread(keeper.read) == {"op": "end", "name": name}
    close(memory, asker, keeper)


async def test_a_connection_for_which_no_descriptor_is_left_is_made_later(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper_link, "RETRY_S", 0.01)
    keeper = SlowKeeper(short_dir / SOCKET)
    link = KeeperLink(short_dir / SOCKET, asyncio.get_running_loop())
    with no_descriptors():
        link.connect()
    assert not link.connected
    await asyncio.to_thread(keeper.accept)
    await asyncio.to_thread(keeper.list, {})
    assert link.connected
    link.close()
    keeper.close()


async def test_memory_of_a_process_for_which_no_descriptor_is_left_stays(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new daemon cannot watch the process for now, which lives on with its memory."""
    monkeypatch.setattr(node_memory, "WATCH_AGAIN_S", 0.01)
    child = await asyncio.create_subprocess_exec("sleep", "600")
    process = process_id(child.pid)
    assert process
    keeper, link, memory = connected(
        short_dir / SOCKET, {f"1.{process.pid}.{process.start}.7": UNIT}
    )
    heard, adopt = asyncio.Event(), link.found

    def found(files: dict[str, int]) -> None:
        adopt(files)
        heard.set()

    link.found = found
    with no_descriptors():
        await heard.wait()
    assert memory.of_job(1) == UNIT
    child.kill()
    ended = await asyncio.to_thread(keeper.read)
    assert ended == {"op": "end", "name": f"1.{process.pid}.{process.start}.7"}
    assert memory.pool.total == 0
    await child.wait()
    close(memory, keeper)


async def test_why_a_process_gets_no_memory_is_logged_once(
    short_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It asks for many pieces. What it gets in between counts as better times."""
    keeper, _, memory = connected(short_dir / SOCKET, {})
    asker, said = Process(), list[str]()
    monkeypatch.setattr(asker, "say", said.append)
    for number in range(100):
        memory.take(asker, Job(1, 1000, UNIT), client_messages.HostTake(number, 2 * UNIT))
    assert len(said) == 1
    asker.heard.clear()
    memory.take(asker, Job(1, 1000, UNIT), client_messages.HostTake(100, UNIT))
    await asyncio.to_thread(keeper.make)
    await asker.heard.wait()
    for number in range(101, 200):
        memory.take(asker, Job(1, 1000, UNIT), client_messages.HostTake(number, UNIT))
    assert len(said) == 2
    close(memory, asker, keeper)
