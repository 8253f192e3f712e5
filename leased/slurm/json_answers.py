"""What Slurm's commands print as JSON.

Releases of Slurm differ: a state is a word or a list of words, and numbers are plain or objects
with "set". An entry that is not as expected is left out and counted, and the others count.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")

MOST_BYTES = 1 << 28  # of one answer: squeue says some 3,000 of a job


class Unreadable(ValueError):
    """The answer is not what Slurm prints."""


class Missing(Unreadable):
    """The answer is an object without the list. there: the names of what it has."""

    def __init__(self, what: str, there: Iterable[str]):
        self.there = frozenset(there)
        super().__init__(f"no list of {what}")


@dataclass(frozen=True)
class Read:
    """What an answer says, and how many entries of it could not be understood."""

    found: tuple[Any, ...]
    not_understood: int


def each_of(text: str, what: str, make: Callable[[Mapping[str, Any]], T]) -> Read:
    """What `make` returns for each entry of the list `what`. Unreadable: there is no such list."""
    try:
        said = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise Unreadable(f"no list of {what} ({fault!r:.100})") from None
    if not isinstance(said, dict):
        raise Unreadable(f"no list of {what}")
    if what not in said:
        raise Missing(what, said)
    listed, errors = said[what], said.get("errors")
    if not isinstance(listed, list) or (errors and not listed):
        raise Unreadable(f"no list of {what}")
    found: list[T] = []
    for one in listed:
        try:
            found.append(make(one))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
    return Read(tuple(found), len(listed) - len(found))


def number_of(value: Any) -> int:
    """A number as any release of Slurm writes it; 0: it is not set."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0


def words_of(value: Any) -> list[str]:
    """A state, or flags: a word, or a list of words."""
    if isinstance(value, Mapping):
        value = value.get("current")
    return [str(word).upper() for word in (value if isinstance(value, list) else [value])]


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else ""


def list_of(value: Any) -> tuple[str, ...]:
    """Names with commas between them, or a list of names."""
    names = value if isinstance(value, list) else text_of(value).split(",")
    return tuple(str(name) for name in names if name)
