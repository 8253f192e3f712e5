"""One timer of the event loop, for the arbiter's next deadline if it has one."""

from __future__ import annotations

import asyncio
import time

from leased.core.arbiter import Tick
from leased.leasing.leases import Leases


class DeadlineTimer:
    """Call arm() whenever the next deadline may have changed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, leases: Leases):
        self.loop = loop
        self.leases = leases
        self.timer: asyncio.TimerHandle | None = None
        self.due: int | None = None  # monotonic ns, of the timer

    def arm(self) -> None:
        due = self.leases.view.next_deadline()
        if due == self.due:
            return
        self.cancel()
        if due is not None:
            delay = max(0.0, (due - time.monotonic_ns()) / 1e9)
            self.timer, self.due = self.loop.call_later(delay, self._pass), due

    def _pass(self) -> None:
        self.timer = self.due = None
        self.leases.run(Tick())

    def cancel(self) -> None:
        if self.timer:
            self.timer.cancel()
            self.timer = self.due = None
