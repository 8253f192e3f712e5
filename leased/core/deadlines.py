"""When something is due, at most one time for each key; in ns of any clock."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)

FEW = 64  # entries of the heap that are not worth clearing


class Deadlines(Generic[Key]):
    """A heap whose outdated entries are cleared before they are the most of it.

    So it never has more than twice as many entries as keys, and FEW, however often deadlines change
    behind one that is far away. heap: nothing is due before the time of the first entry. passed:
    to be called with the time when something is due; it takes that out.
    """

    def __init__(self, passed: Callable[[int], None]) -> None:
        self.passed = passed
        self._due: dict[Key, tuple[int, int, Key]] = {}  # the entry that counts
        self.heap: list[tuple[int, int, Key]] = []
        self._entries = 0  # made so far: of two at one time the older entry is first

    def __getstate__(self) -> dict[str, Any]:
        """Its fields without outdated entries, of which there are more or less by who has asked."""
        return {**vars(self), "heap": sorted(self._due.values())}

    def __len__(self) -> int:
        return len(self._due)

    def of(self, key: Key) -> int | None:
        """When the key is due."""
        found = self._due.get(key)
        return found[0] if found else None

    def put(self, key: Key, when: int | None) -> None:
        """The key is due then, and not at any other time; None: at no time."""
        if when is None:
            self._due.pop(key, None)
            if not self._due:  # nobody may ask for the first one any more
                self.heap.clear()
            return
        self._entries += 1
        entry = self._due[key] = when, self._entries, key
        heapq.heappush(self.heap, entry)
        if len(self.heap) > 2 * len(self._due) + FEW:
            self.heap = list(self._due.values())
            heapq.heapify(self.heap)

    def first(self) -> int | None:
        """The earliest time at which a key is due."""
        heap = self.heap
        while heap:
            entry = heap[0]
            if self._due.get(entry[2]) == entry:
                return entry[0]
            heapq.heappop(heap)
        return None

    def pop(self, now: int) -> Key | None:
        """Take out the key that is due first, if that is by now."""
        if not self.heap or self.heap[0][0] > now:
            return None  # outdated entries are at no later times
        first = self.first()
        if first is None or first > now:
            return None
        key = heapq.heappop(self.heap)[2]
        del self._due[key]
        return key
