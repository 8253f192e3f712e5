"""Waiting: for something, for so long at most; until what is done again and again is due; and for
others, while there is much to do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

OTHERS_AFTER_S = 0.0005  # of work on the loop: then those who have come meanwhile are served
FOR_OTHERS_S = 1e-9


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


class Slices:
    """Work that is done a slice of time at a time, from now on."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self.end = time.thread_time() + OTHERS_AFTER_S

    async def rest(self) -> None:
        """Where the slice is over, let the loop serve what has come meanwhile. A timer does that:
        after sleep(0) the loop would go on with this work before it serves what it hears."""
        if time.thread_time() > self.end:
            await asyncio.sleep(FOR_OTHERS_S)
            self._begin()
