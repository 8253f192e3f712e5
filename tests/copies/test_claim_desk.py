"""Claims that wait for host memory: of whom, and how many."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Callable
from typing import cast

from _gpulease import ffi, lib

from leased.copies.claim_desk import DEVICES, JOBS_A_LOOK, LOOK_S, WAIT, ClaimDesk
from leased.copies.claims import Claims, DeviceUse
from leased.copies.node_memory import NodeMemory
from leased.processes.identity import ProcessId
from leased.wire import client_messages
from tests.fuzz.fakes import FakeLoop

UUIDS = [f"GPU-00000000-0000-0000-0000-{number:012x}" for number in range(100)]
UUID = UUIDS[0]
EMPTY = "GPU-10000000-0000-0000-0000-000000000000"  # where all fits, so nothing may have to leave
ROOM = 1 << 30


class Process:
    """Counts what it is answered."""

    process: ProcessId | None = None
    sock = cast(socket.socket, None)

    def __init__(self) -> None:
        self.heard: Counter[int] = Counter()

    open = True

    def takes_file(self) -> bool:
        raise AssertionError

    def send_file(self, message: bytes, descriptor: int) -> bool:
        raise AssertionError(message, descriptor)

    def send(self, message: bytes) -> None:
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


def claim(number: int, size: int, uuid: str = UUID) -> client_messages.Claim:
    return client_messages.Claim(number=number, uuid=uuid, bytes=size, least=size)


def full_desk() -> tuple[ClaimDesk, Node, FakeLoop]:
    """Where fixed memory fills the device, so that all that is claimed there may have to leave."""
    node, loop = Node(), FakeLoop()
    use = {uuid: DeviceUse(ROOM, {}, {9: ROOM}) for uuid in UUIDS} | {
        EMPTY: DeviceUse(ROOM, {}, {})
    }
    claims = Claims(lambda: use, lambda _: True, lambda *_: ROOM)
    desk = ClaimDesk(cast(NodeMemory, node), claims, loop, lambda: WAIT)  # type: ignore[arg-type]
    return desk, node, loop


def test_after_a_restart_claims_are_answered_when_all_have_come_back() -> None:
    """What the others have is not known before that."""
    (desk, node, loop), (one, other) = full_desk(), (Process(), Process())
    desk.settled = lambda: settled
    settled, node.budget_bytes = False, 4 * ROOM
    for process in (one, other):
        desk.claim(process, 1, claim(1, ROOM))
    desk.claim(one, 1, claim(2, ROOM // 2))
    desk.forget(other)
    loop.advance(10)
    assert not one.heard
    settled = True
    loop.advance(1)
    assert one.heard == {lib.GL_CLAIM_GRANTED: 1}
    assert not other.heard
    assert desk.claims.of(one, UUID) == ROOM // 2


def test_of_a_process_one_claim_for_each_device_waits() -> None:
    """Otherwise it could have the daemon keep more and more of them, for as long as it likes."""
    (desk, node, loop), (greedy, other) = full_desk(), (Process(), Process())
    for number in range(100):
        desk.claim(greedy, 1, claim(number, ROOM))
    assert len(desk.waiters) == 1
    for uuid in UUIDS:
        desk.claim(greedy, 1, claim(1, ROOM, uuid))
    desk.claim(other, 2, claim(1, ROOM))
    assert len(desk.waiters) == DEVICES + 1
    assert other.heard == {lib.GL_CLAIM_WAITS: 1}
    desk.forget(greedy)
    node.budget_bytes = 4 * ROOM
    loop.advance(1)
    assert other.heard[lib.GL_CLAIM_GRANTED] == 1
    assert not desk.waiters


def test_a_smaller_claim_counts_in_place_of_one_that_waits() -> None:
    """The process has freed memory: what it no longer needs must not keep it waiting."""
    (desk, node, _), (first, second) = full_desk(), (Process(), Process())
    node.budget_bytes = ROOM // 2
    desk.claim(first, 1, claim(1, ROOM))
    desk.claim(second, 2, claim(1, ROOM))
    desk.claim(first, 1, claim(2, ROOM // 4 * 3))
    assert first.heard == {lib.GL_CLAIM_WAITS: 2}
    assert [waiter.asker for waiter in desk.waiters] == [first, second], "it keeps its place"
    desk.claim(first, 1, claim(3, ROOM // 4))
    assert first.heard[lib.GL_CLAIM_GRANTED] == 1
    assert [waiter.asker for waiter in desk.waiters] == [second]


def test_where_too_little_is_left_what_needs_none_is_granted() -> None:
    """The budget is smaller than what others have, or say that they have."""
    (desk, node, _), (one, other) = full_desk(), (Process(), Process())
    node.budget_bytes = -(16 << 40)
    desk.claim(one, 1, claim(1, ROOM, EMPTY))
    assert one.heard == {lib.GL_CLAIM_GRANTED: 1}
    desk.claim(other, 2, claim(1, ROOM))
    assert other.heard == {lib.GL_CLAIM_WAITS: 1}


def test_a_claim_that_is_never_granted_keeps_no_other_jobs_waiting() -> None:
    """However many jobs have such claims, and whoever came first."""
    (desk, node, loop), (first, second) = full_desk(), (Process(), Process())
    large = [Process() for _ in range(3 * JOBS_A_LOOK)]
    for job, process in enumerate(large):
        desk.claim(process, 100 + job, claim(1, ROOM))
    for process in (first, second):
        desk.claim(process, 1, claim(1, ROOM // 4))
    node.budget_bytes = ROOM * 3 // 4
    loop.advance(LOOK_S * 5)
    assert first.heard[lib.GL_CLAIM_GRANTED] == second.heard[lib.GL_CLAIM_GRANTED] == 1
    assert len(desk.waiters) == len(large)
    node.budget_bytes = ROOM * 3
    loop.advance(LOOK_S)
    assert large[-1].heard == {lib.GL_CLAIM_WAITS: 1}
    assert sum(process.heard[lib.GL_CLAIM_GRANTED] for process in large) == 2


def test_what_a_process_has_claimed_and_waits_for_moves_with_it() -> None:
    (desk, node, loop), (one, other) = full_desk(), (Process(), Process())
    node.budget_bytes = ROOM
    desk.claim(one, 1, claim(1, ROOM // 2))
    desk.claim(other, 2, claim(1, ROOM))
    assert (one.heard, other.heard) == ({lib.GL_CLAIM_GRANTED: 1}, {lib.GL_CLAIM_WAITS: 1})
    desk.settled = lambda: settled
    settled = False
    desk.claim(one, 1, claim(2, ROOM // 4))
    for process in (one, other):
        desk.move(process, UUID, EMPTY)
    assert desk.claims.claimed == {EMPTY: {1: ROOM // 2}}
    settled, node.budget_bytes = True, 4 * ROOM
    loop.advance(1)
    assert (one.heard, other.heard) == (
        {lib.GL_CLAIM_GRANTED: 2},
        {lib.GL_CLAIM_WAITS: 1, lib.GL_CLAIM_GRANTED: 1},
    )
    assert desk.claims.claimed == {EMPTY: {1: ROOM // 4, 2: ROOM}}
