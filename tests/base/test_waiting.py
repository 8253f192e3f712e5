"""Waiting for so long at most, and what becomes of a cancellation meanwhile."""

from __future__ import annotations

import asyncio

from leased.base.waiting import is_done_within

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
