"""Claims that wait for host memory: of whom, and how many."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import cast

from _gpulease import ffi, lib

from leased.copies.claim_desk import CLAIMS_WAITING, WAIT, ClaimDesk
from leased.copies.claims import Claims, DeviceUse
from leased.copies.node_memory import NodeMemory
from leased.processes.identity import ProcessId
from leased.wire import client_messages
from tests.fuzz.fakes import FakeLoop

UUID = "GPU-00000000-0000-0000-0000-000000000001"
ROOM = 1 << 30


class Process:
    """Counts what it is answered."""

    process: ProcessId | None = None
    sock = cast(socket.socket, None)

    def __init__(self) -> None:
        self.heard: Counter[int] = Counter()

    def send(self, message: bytes, descriptor: int | None = None) -> None:
        assert descriptor is None
        self.heard[int(ffi.from_buffer("struct gl_claimed *", message).code)] += 1

    def say(self, words: str) -> None:
        raise AssertionError(words)


class Node:
    """A node with no host memory to give until it is told otherwise."""

    needs: Callable[[], Counter[int]] = Counter
    budget_bytes = 0

    def budget(self) -> int:
        return self.budget_bytes

    def left(self) -> int:
        return self.budget_bytes - sum(self.needs().values())


def claim(number: int, size: int) -> client_messages.Claim:
    return client_messages.Claim(number=number, uuid=UUID, bytes=size, least=size)


def test_a_process_has_no_more_claims_that_wait_than_threads_that_allocate() -> None:
    """Otherwise it could have the daemon keep more and more of them, for as long as it likes."""
    node, loop = Node(), FakeLoop()
    use = {UUID: DeviceUse(ROOM, {}, {9: ROOM})}
    claims = Claims(lambda: use, lambda _: True)
    desk = ClaimDesk(cast(NodeMemory, node), claims, loop, lambda: WAIT)  # type: ignore[arg-type]
    greedy, other = Process(), Process()
    for number in range(10 * CLAIMS_WAITING):
        desk.claim(greedy, 1, claim(number, ROOM))
    desk.claim(other, 2, claim(1, ROOM))
    assert len(desk.waiters) == CLAIMS_WAITING + 1
    assert greedy.heard[lib.GL_CLAIM_WAITS] == CLAIMS_WAITING
    assert greedy.heard[lib.GL_CLAIM_REFUSED] == 9 * CLAIMS_WAITING
    assert other.heard == {lib.GL_CLAIM_WAITS: 1}
    desk.forget(greedy)
    node.budget_bytes = 4 * ROOM
    loop.advance(1)
    assert other.heard[lib.GL_CLAIM_GRANTED] == 1
    assert not desk.waiters
