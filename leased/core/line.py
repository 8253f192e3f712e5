"""Things in the order of their places."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Line(Generic[Item]):
    """A sorted list: a place is found by halving, and moving what is behind it costs little.

    Of things at one place only those that can be compared may be put in.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[int, Item]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Item]:
        return iter([item for _, item in self.entries])

    def add(self, place: int, item: Item) -> None:
        insort(self.entries, (place, item))

    def remove(self, place: int, item: Item) -> None:
        """What is not there stays away."""
        at = bisect_left(self.entries, (place, item))
        if at < len(self.entries) and self.entries[at] == (place, item):
            del self.entries[at]

    def last(self) -> Item:
        """What has the last place. IndexError: there is nothing."""
        return self.entries[-1][1]

    def between(self, low: int, high: int) -> list[Item]:
        """Those at places above `low` and up to `high`."""
        start = bisect_left(self.entries, low + 1, key=lambda entry: entry[0])
        end = bisect_left(self.entries, high + 1, key=lambda entry: entry[0])
        return [item for _, item in self.entries[start:end]]
