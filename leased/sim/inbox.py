"""One event after the other, though taking one may bring others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Inbox(Generic[T]):
    """take: called with each event. busy: it is being called."""

    def __init__(self, take: Callable[[T], None]):
        self._take = take
        self._waiting: deque[T] = deque()
        self.busy = False

    def put(self, event: T) -> bool:
        """Returns whether this and all that it has brought is done; else the outer call does it."""
        self._waiting.append(event)
        if self.busy:
            return False
        self.busy = True
        while self._waiting:
            self._take(self._waiting.popleft())
        self.busy = False
        return True
