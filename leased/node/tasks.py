"""The pieces of work that go on as long as the daemon does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger("gpu-leased")

AGAIN_S = 1.0


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
        """Do the work every `seconds`, the first time after as many."""

        async def repeated() -> None:
            while True:
                await asyncio.sleep(seconds)
                await work()

        repeated.__name__ = work.__name__
        self.start(repeated)

    async def end(self) -> None:
        """Cancel them, and wait until each has ended what it began, its children too."""
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)
