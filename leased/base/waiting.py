"""Waiting: for something, for so long at most; and until what is done again and again is due."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def is_done_within(future: asyncio.Future[Any], seconds: float) -> bool:
    """Wait until the future is done, for so many seconds at most. Returns whether it is.

    asyncio.wait_for() would do, but up to Python 3.11 it loses the caller's cancellation if that
    comes at the moment at which the future is done: a task that goes on for ever then never ends.
    """
    done, _ = await asyncio.wait({future}, timeout=seconds)
    return bool(done)


async def within(seconds: float, work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to. asyncio.TimeoutError: it takes longer. Then, and where the caller is
    cancelled, it is ended first."""
    task = asyncio.ensure_future(work)
    try:
        if not await is_done_within(task, seconds):
            raise asyncio.TimeoutError
        return task.result()
    finally:
        task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.exception()  # which is not said to have been lost where the caller was cancelled


def to_next(period: float, now: float) -> float:
    """Seconds until the clock shows a multiple of the period. So what is done once a second is done
    when what is done twice a second is done too, and the process wakes as seldom as it can."""
    left = period - now % period
    return left if left > period / 10 else left + period  # a timer may be early
