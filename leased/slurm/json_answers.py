"""What Slurm's commands print as JSON.

Releases of Slurm differ: a state is a word or a list of words, and numbers are plain or objects
with "set". An entry that is not as expected is left out and counted, and the others count.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STEP = 1 << 18  # bytes that are read before they are looked at
ENTRY_MOST = 1 << 24  # bytes of one entry: squeue says some 3,000 of a job, and more of wide ones
# All up to the next bracket that stands in no text. A text may have any character.
PIECE = re.compile(rb'[^"{}\[\]]*(?:"[^"\\]*(?:\\.[^"\\]*)*"[^"{}\[\]]*)*([{}\[\]])', re.DOTALL)
NAME = re.compile(rb'"(\w+)"\s*:')
LAST_NAME = re.compile(rb'"(\w+)"\s*:\s*[{\[]$')
NUMBER = re.compile(rb'(?<!\\)"job_id"\s*:\s*(\d{1,10})\b')


class Unreadable(ValueError):
    """The answer is not what Slurm prints."""


class Missing(Unreadable):
    """The answer is an object without the list. there: the names of what it has."""

    def __init__(self, what: str, there: Iterable[str]):
        self.there = frozenset(there)
        super().__init__(f"no list of {what}")


class TooLong(ValueError):
    """An entry has texts that nobody needs so long. name: whose it is."""

    def __init__(self, name: str):
        super().__init__(name)
        self.name = name


@dataclass(frozen=True)
class Read:
    """What an answer says, how many entries of it could not be understood, and whose were too
    long."""

    found: tuple[Any, ...]
    not_understood: int = 0
    too_long: tuple[str, ...] = ()


class Entries:
    """Reads the list `what` of an answer entry by entry, as the answer comes in.

    Users choose much of what an entry says, and how many there are, so neither the answer nor what
    `make` has not taken of an entry is kept.
    """

    def __init__(self, what: str, make: Callable[[Mapping[str, Any]], Any]):
        self.what = what
        self.make = make
        self.data = bytearray()  # what is not done with
        self.at = 0  # so much of it has been looked at
        self.entry: int | None = None  # where the entry begins that is being read
        self.depth = 0
        self.inside = ""  # the name of the list or object that is being read
        self.there: set[str] = set()
        self.faulty = False  # it says that errors have occurred
        self.is_list = False
        self.found: list[Any] = []
        self.too_long: list[str] = []
        self.not_understood = 0

    def feed(self, data: bytes) -> None:
        """Take the next bytes. Unreadable: they are no such answer."""
        self.data += data
        if len(self.data) - self.at >= STEP:
            self._go_on()

    def end(self) -> Read:
        """What has been read. Unreadable: there is no such list."""
        self._go_on()
        if self.depth or self.data.strip():
            raise Unreadable(f"no list of {self.what}: it does not end")
        if self.what not in self.there:
            raise Missing(self.what, self.there)
        read = Read(tuple(self.found), self.not_understood, tuple(self.too_long))
        if not self.is_list or (self.faulty and read == Read(())):
            raise Unreadable(f"no list of {self.what}")
        return read

    def _go_on(self) -> None:
        while piece := PIECE.match(self.data, self.at):
            self.at = piece.end()
            if piece[1] in b"{[":
                self._open(piece)
            else:
                self._close(piece)
        if len(self.data) - self.at > ENTRY_MOST:
            raise Unreadable(f"a text of more than {ENTRY_MOST} bytes")
        if self.entry is not None and len(self.data) - self.entry > ENTRY_MOST:
            number = NUMBER.search(self.data, self.entry)
            self.too_long.append(number[1].decode() if number else "?")
            self.entry = None
        done = self.at if self.entry is None else self.entry
        del self.data[:done]
        self.at -= done
        self.entry = None if self.entry is None else 0

    def _open(self, piece: re.Match[bytes]) -> None:
        bracket = piece[1]
        self.depth += 1
        if self.depth == 1 and (bracket != b"{" or piece[0].strip() != b"{"):
            raise Unreadable(f"no list of {self.what}")
        if self.depth == 2:
            self._names(piece[0])
            name = LAST_NAME.search(piece[0])
            self.inside = name[1].decode() if name else ""
            self.is_list = self.is_list or (self.inside == self.what and bracket == b"[")
        elif self.depth == 3 and self.inside == "errors":
            self.faulty = True
        elif self.depth == 3 and self._in_list():
            self.not_understood += plain(piece[0][:-1])
            if bracket == b"{":
                self.entry = piece.end() - 1
            else:
                self.not_understood += 1

    def _close(self, piece: re.Match[bytes]) -> None:
        if self.depth == 3 and self.entry is not None:
            self._make(bytes(self.data[self.entry : self.at]))
            self.entry = None
        elif self.depth == 2 and self._in_list():
            self.not_understood += plain(piece[0][:-1])
        elif self.depth == 2 and self.inside == "errors":
            self.faulty = self.faulty or plain(piece[0][:-1]) > 0
        elif self.depth == 1:
            self._names(piece[0])
        elif not self.depth:
            raise Unreadable(f"no list of {self.what}")
        self.depth -= 1

    def _in_list(self) -> bool:
        return self.is_list and self.inside == self.what

    def _names(self, text: bytes) -> None:
        self.there |= {name.decode() for name in NAME.findall(text)}

    def _make(self, text: bytes) -> None:
        try:
            self.found.append(self.make(json.loads(text.decode(errors="replace"))))
        except TooLong as fault:
            self.too_long.append(fault.name)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            self.not_understood += 1


def plain(text: bytes) -> int:
    """How many values stand in a part of a list that has no brackets."""
    return sum(1 for value in text.split(b",") if value.strip())


def read_of(text: str, entries: Entries) -> Read:
    """What the entries say in a whole answer. Unreadable: there is no such list."""
    entries.feed(text.encode(errors="replace"))
    return entries.end()


def number_of(value: Any) -> int:
    """A number as any release of Slurm writes it; 0: it is not set."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set") and not value.get("infinite") else None
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0


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
