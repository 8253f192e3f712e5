"""The pieces of work that go on as long as the daemon does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Optional

from leased.base.waiting import OTHERS_AFTER_S, to_next

log = logging.getLogger("gpu-leased")

AGAIN_S = 1.0
AT_ONCE_S = 0.001  # what is due so soon is done now

# A look: what is left to be waited for, or None where all has been done.
Look = Callable[[], Optional[Coroutine[Any, Any, None]]]


@dataclass
class Beat:
    """A look that is repeated. pause: seconds, asked for anew after each look. due: by the loop's
    clock. under_way: what a look has left to be waited for."""

    pause: Callable[[], float]
    look: Look
    due: float
    under_way: asyncio.Task[None] | None = None


class Tasks:
    """A fault in one piece of work is logged and stops no other.

    All that is repeated has one timer, so that the process wakes as seldom as it can.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop):
        self.loop = loop
        self.tasks: set[asyncio.Task[None]] = set()
        self.beats: list[Beat] = []
        self.timer: asyncio.TimerHandle | None = None

    def start(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work for ever; after a fault, begin it again."""

        async def forever() -> None:
            while True:
                try:
                    await work()
                except Exception as fault:
                    _say(work, fault)
                    await asyncio.sleep(AGAIN_S)

        self.tasks.add(self.loop.create_task(forever()))

    def every(self, pause: float | Callable[[], float], look: Look) -> None:
        """Look every `pause` seconds, the first time after as many at most. While a look is under
        way there is no other one."""
        ask = pause if callable(pause) else lambda: pause
        self.beats.append(Beat(ask, look, self.loop.time() + to_next(ask(), self.loop.time())))
        self._arm()

    def _arm(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.timer = self.loop.call_at(min(beat.due for beat in self.beats), self._pass)

    def _pass(self) -> None:
        now = self.loop.time()
        for beat in self.beats:
            if beat.due <= now + AT_ONCE_S:
                self._look(beat)
                beat.due = now + to_next(beat.pause(), now)
                if self.loop.time() - now > OTHERS_AFTER_S:
                    break  # messages are served before the next look
        self._arm()

    def _look(self, beat: Beat) -> None:
        if beat.under_way is not None:
            return
        try:
            rest = beat.look()
        except Exception as fault:
            _say(beat.look, fault)
            return
        if rest is not None:
            beat.under_way = self.loop.create_task(rest)
            self.tasks.add(beat.under_way)
            beat.under_way.add_done_callback(lambda task: self._looked(beat, task))

    def _looked(self, beat: Beat, task: asyncio.Task[None]) -> None:
        beat.under_way = None
        self.tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            _say(beat.look, fault)

    async def end(self) -> None:
        """Cancel them, and wait until each has ended what it began, its children too."""
        if self.timer is not None:
            self.timer.cancel()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)


def _say(part: Callable[..., object], fault: BaseException) -> None:
    name = getattr(part, "__name__", repr(part))
    log.error("a part of gpu-leased failed and begins again (%s)", name, exc_info=fault)
