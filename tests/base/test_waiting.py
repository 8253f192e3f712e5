"""Waiting: for so long at most, and for others; and what becomes of a cancellation meanwhile."""

from __future__ import annotations

import asyncio
import socket
import time

import pytest

from leased.base.waiting import OTHERS_AFTER_S, Slices, is_done_within, within

LONG_S = 600.0


def test_it_says_whether_the_future_is_done() -> None:
    async def scene() -> list[bool]:
        future = asyncio.get_running_loop().create_future()
        said = [await is_done_within(future, 0)]
        future.set_result(None)
        return [*said, await is_done_within(future, LONG_S)]

    assert asyncio.run(scene()) == [False, True]


def test_a_cancellation_that_comes_with_the_end_is_not_lost() -> None:
    """The daemon's tasks go on for ever: one that lost it would hold up the daemon's stop."""

    async def scene() -> bool:
        future = asyncio.get_running_loop().create_future()
        task = asyncio.create_task(is_done_within(future, LONG_S))
        await asyncio.sleep(0)
        future.set_result(None)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled()

    assert asyncio.run(scene())


async def answers(future: asyncio.Future[str]) -> str:
    return await future


async def asked(end: bool) -> tuple[asyncio.Future[str], asyncio.Task[str]]:
    """What is waited for, by work of a task. end: it is done, and the work as well."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(within(LONG_S, answers(future)))
    for _ in range(3):
        await asyncio.sleep(0)
    if end:
        future.set_result("there")
        await asyncio.sleep(0)
    return future, task


def test_work_is_waited_for_and_ended_when_it_takes_too_long() -> None:
    async def scene() -> None:
        _, task = await asked(end=True)
        assert await task == "there"
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with pytest.raises(asyncio.TimeoutError):
            await within(0, answers(never))
        assert never.cancelled()

    asyncio.run(scene())


@pytest.mark.parametrize("end", [True, False])
def test_a_cancellation_ends_the_work_and_is_not_lost_where_it_is_done(end: bool) -> None:
    async def scene() -> bool:
        future, task = await asked(end)
        task.cancel()
        await asyncio.wait({task})
        return task.cancelled() and future.done()

    assert asyncio.run(scene())


@pytest.mark.parametrize(
    ("slices", "order"),
    [(2, ["work", "heard", "work", "work"]), (0.75, ["work", "work", "heard", "work"])],
)
def test_behind_a_slice_others_are_served(
    slices: float, order: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also who is heard only then, as the message of another process is. slices: of work at once,
    before the loop may go on."""
    spent, done = 0.0, []
    monkeypatch.setattr(time, "thread_time", lambda: spent)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def hear() -> None:
        ours.recv(16)
        done.append("heard")

    async def work() -> None:
        nonlocal spent
        asyncio.get_running_loop().add_reader(ours, hear)
        piece = Slices()
        theirs.send(b"message")
        for _ in range(3):
            done.append("work")
            spent += slices * OTHERS_AFTER_S
            await piece.rest()

    with ours, theirs:
        asyncio.run(work())
    assert done == order
