"""Sorted lists, and the places of waiters."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

# Of a waiter: one number, since numbers are compared far more often than made. The lowest is
# served first.
Place = int
ARRIVALS = 1 << 64  # more than there will ever be
FIRST: Place = -1 << 200  # before all others

Item = TypeVar("Item")


def place_of(order: int, arrival: int) -> Place:
    """The place of a waiter: first by its policy's order, then by its arrival."""
    return order * ARRIVALS + arrival


class Line(Generic[Item]):
    """A list of items sorted by numbers, such as their places: where one belongs is found by
    halving, and moving those behind it costs little.

    Items at the same place must be comparable.
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

    def between(self, low: int, high: int) -> list[Item]:
        """The items at places above `low` and up to `high`."""
        start = bisect_right(self.entries, low, key=lambda entry: entry[0])
        end = bisect_right(self.entries, high, key=lambda entry: entry[0])
        return [item for _, item in self.entries[start:end]]

    def up_to(self, place: int) -> list[Item]:
        """The items at that place and before it."""
        end = bisect_right(self.entries, place, key=lambda entry: entry[0])
        return [item for _, item in self.entries[:end]]

    def cut(self, place: int) -> None:
        """Remove all items beyond that place."""
        del self.entries[bisect_right(self.entries, place, key=lambda entry: entry[0]) :]

    def from_place(self, place: int) -> list[tuple[int, Item]]:
        """The items beyond that place, with their places."""
        start = bisect_right(self.entries, place, key=lambda entry: entry[0])
        return self.entries[start:] if start else self.entries
