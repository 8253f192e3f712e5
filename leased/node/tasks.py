"""The pieces of work that go on as long as the daemon does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("gpu-leased")

AGAIN_S = 1.0


def to_next(period: float, now: float) -> float:
    """Seconds until the clock shows a multiple of the period. So what is done once a second is done
    when what is done twice a second is done too, and the process wakes as seldom as it can."""
    left = period - now % period
    return left if left > period / 10 else left + period  # a timer may be early


class Tasks:
    """A fault in one piece of work is logged and stops no other."""

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self.tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work for ever; after a fault, begin it again."""

        async def forever() -> None:
            while True:
                try:
                    await work()
                except Exception:
                    log.exception(
                        "a part of gpu-leased failed and begins again (%s)", work.__name__
                    )
                    await asyncio.sleep(AGAIN_S)

        self.tasks.add(self.loop.create_task(forever()))

    def every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work every `seconds`, the first time after as many at most."""

        async def repeated() -> None:
            while True:
                await asyncio.sleep(to_next(seconds, self.loop.time()))
                await work()

        repeated.__name__ = work.__name__
        self.start(repeated)

    async def end(self) -> None:
        """Cancel them, and wait until each has ended what it began, its children too."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
