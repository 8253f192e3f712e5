"""What Python's zip has from 3.10 on (strict), and itertools too (pairwise)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import tee, zip_longest
from typing import Any, TypeVar, overload

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
NOTHING = object()


@overload
def zip_strict(one: Iterable[A], two: Iterable[B], /) -> Iterator[tuple[A, B]]: ...
@overload
def zip_strict(
    one: Iterable[A], two: Iterable[B], three: Iterable[C], /
) -> Iterator[tuple[A, B, C]]: ...
@overload
def zip_strict(*each: Iterable[Any]) -> Iterator[tuple[Any, ...]]: ...
def zip_strict(*each: Iterable[Any]) -> Iterator[tuple[Any, ...]]:
    """What stands at the same place of each. ValueError: one of them is shorter."""
    for together in zip_longest(*each, fillvalue=NOTHING):
        if any(part is NOTHING for part in together):
            raise ValueError("one of them is shorter")
        yield together


def pairwise(each: Iterable[A]) -> Iterator[tuple[A, A]]:
    """Each with the one after it."""
    before, after = tee(each)
    next(after, None)
    return zip(before, after)
