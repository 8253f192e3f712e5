"""A sorted list of items, and the places of waiters."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

# Of a waiter: what the policy says, and its arrival. The lowest is served first.
Place = tuple[int, int]

At = TypeVar("At", int, tuple[int, int])
Item = TypeVar("Item")


class Line(Generic[At, Item]):
    """A sorted list: a place is found by halving, and moving the items behind it costs little.

    Items at the same place must be comparable.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[At, Item]] = []

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Item]:
        return iter([item for _, item in self.entries])

    def add(self, place: At, item: Item) -> None:
        insort(self.entries, (place, item))

    def remove(self, place: At, item: Item) -> None:
        """Remove an item; one that is not there is ignored."""
        at = bisect_left(self.entries, (place, item))
        if at < len(self.entries) and self.entries[at] == (place, item):
            del self.entries[at]

    def first(self) -> Item | None:
        """The item with the first place."""
        return self.entries[0][1] if self.entries else None

    def last(self) -> Item:
        """The item with the last place. IndexError: the list is empty."""
        return self.entries[-1][1]

    def between(self, low: At, high: At) -> list[Item]:
        """The items at places above `low` and up to `high`."""
        start = bisect_right(self.entries, low, key=lambda entry: entry[0])
        end = bisect_right(self.entries, high, key=lambda entry: entry[0])
        return [item for _, item in self.entries[start:end]]

    def foremost(self, most: int) -> list[Item]:
        """The items with the first places, at most so many."""
        return [item for _, item in self.entries[:most]]

    def cut(self, place: At) -> None:
        """Remove all items beyond that place."""
        del self.entries[bisect_right(self.entries, place, key=lambda entry: entry[0]) :]

    def from_place(self, place: At) -> list[tuple[At, Item]]:
        """The items beyond that place, with their places."""
        start = bisect_right(self.entries, place, key=lambda entry: entry[0])
        return self.entries[start:] if start else self.entries
