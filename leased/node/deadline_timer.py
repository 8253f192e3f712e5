"""One timer of the event loop, for the next deadline of something that has any."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class DeadlineTimer:
    """Call arm() whenever the next deadline may have changed. next_deadline: in ns of the monotonic
    clock, which is the loop's; None: there is none. passed: called when it has come."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        next_deadline: Callable[[], int | None],
        passed: Callable[[], None],
    ):
        self.loop = loop
        self.next_deadline = next_deadline
        self.passed = passed
        self.timer: asyncio.TimerHandle | None = None
        self.due: int | None = None  # monotonic ns, of the timer

    def arm(self) -> None:
        due = self.next_deadline()
        if due == self.due:
            return
        if self.timer:
            self.cancel()
        if due is not None:
            self.timer, self.due = self.loop.call_at(due / 1e9, self._pass), due

    def _pass(self) -> None:
        self.timer = self.due = None
        self.passed()

    def cancel(self) -> None:
        if self.timer:
            self.timer.cancel()
            self.timer = self.due = None
