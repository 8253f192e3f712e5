"""Hears what has come to the daemon's sockets before something is done.

A daemon that had no processor for a while finds its deadlines passed and, at the same moment, what
processes have said to it meanwhile: a connection first, and what comes on it later. Where it
matters that nobody waits to be heard the deadline comes after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

# Turns of the event loop, each of which looks at all sockets: one takes connections, the next reads
# what is on them, and users' may have to wait for those of others.
TURNS = 8


class HearsFirst:
    """does: called once for each time that tick() is called and it is not about to be."""

    def __init__(self, loop: asyncio.AbstractEventLoop, does: Callable[[], None]):
        self.loop, self.does = loop, does
        self.left = 0

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
