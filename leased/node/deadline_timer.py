"""One timer of the event loop, for the next deadline of something that has any; and what has come
to the daemon's sockets is heard before something is done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class DeadlineTimer:
    """Call arm() whenever the next deadline may have changed. next_deadline: in ns of the monotonic
    clock, which is the loop's; None: there is none. passed: called when it has come."""

    loop: asyncio.AbstractEventLoop
    next_deadline: Callable[[], int | None]
    passed: Callable[[], None]
    timer: asyncio.TimerHandle | None = None
    due: int | None = None  # monotonic ns, of the timer

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


# Turns of the event loop, each of which looks at all sockets: one takes connections, the next reads
# what is on them, and users' may have to wait for those of others.
TURNS = 8


@dataclass
class HearsFirst:
    """A daemon that had no processor for a while finds its deadlines passed and, at the same time,
    what processes have said to it meanwhile: a connection first, and what comes on it later. Where
    it matters that nobody waits to be heard the deadline comes after that.

    does: called once for each time that tick() is called and it is not about to be.
    """

    loop: asyncio.AbstractEventLoop
    does: Callable[[], None]
    left: int = 0

    def tick(self) -> None:
        if not self.left:
            self.left = TURNS
            self._turn()

    def _turn(self) -> None:
        self.left -= 1
        if self.left:
            self.loop.call_soon(self._turn)
        else:
            self.does()
