"""Before Python 3.10 an event of asyncio belongs to the loop that was there when it was made. Tests
make parts of the daemon where no loop runs; the daemon makes them in its own."""

from __future__ import annotations

import asyncio
import sys
from collections import deque


def _init(event: asyncio.Event, *, loop: object = None) -> None:
    """loop: a queue says the one that it was given."""
    del loop
    event.__dict__.update(_waiters=deque(), _value=False)


def events_have_the_loop_that_waits() -> None:
    """As it is from Python 3.10 on."""
    if sys.version_info < (3, 10):
        asyncio.Event.__init__ = _init  # type: ignore[assignment, method-assign]
        setattr(asyncio.Event, "_loop", property(lambda _: asyncio.get_running_loop()))  # noqa: B010
