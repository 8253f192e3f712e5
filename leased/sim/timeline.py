"""Simulated time: it jumps to the next thing that happens, and nothing sleeps."""

from __future__ import annotations

import functools
import heapq
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Timeline:
    """now: ns since the beginning. happened: how many things have."""

    def __init__(self) -> None:
        self.now = 0
        self.happened = 0
        self._coming: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def at(self, when: int, act: Callable[[], None]) -> None:
        """Call `act` at that time. Of calls at the same time, the one planned first comes first."""
        self._made += 1
        heapq.heappush(self._coming, (max(when, self.now), self._made, act))

    def after(self, ns: int, act: Callable[[], None]) -> None:
        self.at(self.now + ns, act)

    def first(self) -> int | None:
        """When the next thing happens; None: nothing is planned."""
        return self._coming[0][0] if self._coming else None

    def step(self) -> None:
        """Let the next thing happen."""
        when, _, act = heapq.heappop(self._coming)
        self.now = when
        self.happened += 1
        act()


class Deadline:
    """When somebody is to act next, which changes. due: None: never."""

    def __init__(self, timeline: Timeline, act: Callable[[], None]):
        self._timeline, self._act = timeline, act
        self.due: int | None = None

    def set(self, due: int | None) -> None:
        if due is not None and due != self.due:
            self._timeline.at(due, functools.partial(self._pass, due))
        self.due = due

    def _pass(self, planned: int) -> None:
        if planned == self.due:
            self.due = None
            self._act()


class Inbox(Generic[T]):
    """One event after the other, though taking one may bring others. take: called with each event.
    busy: it is being called."""

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
