"""Lines of Slurm's files, with those of the files that they include.

Administrators write these files, and releases of Slurm differ in what they accept.
So a line that cannot be understood is reported and left out, and the others count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from leased.base import text_file
from leased.base.requests import shown

MOST_BYTES = 8 << 20  # of one file
MOST_FILES = 256  # that one includes, and they include
DEEPEST = 16
MOST_FAULTS = 8  # that are named
# As Slurm's own parser has it: white space may be around the sign, quotes around the value.
PAIR = re.compile(r'\s*([A-Za-z0-9_.]+)\s*[-+*/]?=\s*("[^"]*"|\S+)(?=\s|$)', re.ASCII)

Fields = dict[str, str]


@dataclass(frozen=True)
class Line:
    """A line without its comment, with those that continue it. number: of its first."""

    file: Path
    number: int
    text: str


@dataclass
class Faults:
    """What is odd, in sentences; of many the first."""

    named: dict[str, None] = field(default_factory=dict)
    more: bool = False

    def add(self, why: str) -> None:
        if len(self.named) < MOST_FAULTS:
            self.named[why] = None
        elif why not in self.named:
            self.more = True

    def line(self, line: Line, why: str) -> None:
        self.add(f"{line.file}, line {line.number}: {why}")

    def listed(self) -> list[str]:
        return [*self.named, *(["there are more lines like these"] if self.more else [])]


Included = Callable[[Path, str], Iterable[Path]]


@dataclass
class Reader:
    """Reads one file with all that it includes. included: the files that a word names."""

    included: Included
    faults: Faults
    files: int = 0

    def read(self, path: Path, depth: int = 0) -> Iterator[Line]:
        """The lines. OSError: the file itself cannot be read; of included ones that is a fault."""
        self.files += 1
        text = text_file.read(path, MOST_BYTES).decode(errors="replace")
        for line in self._lines(path, text):
            word, rest = [*line.text.split(maxsplit=1), "", ""][:2]
            if word.lower() == "include":
                yield from self._include(line, rest, depth)
            elif not line.text.replace("\t", "").isprintable():
                self.faults.line(line, f"{shown(line.text)} has a control character")
            elif word:
                yield line

    @staticmethod
    def _lines(path: Path, text: str) -> Iterator[Line]:
        number, begun, first = 0, "", 1
        for raw in text.split("\n"):
            number += 1
            line = re.sub(r"(?<!\\)#.*", "", raw, flags=re.DOTALL).rstrip("\r")
            if line.endswith("\\"):
                begun, first = begun + line[:-1], first if begun else number
                continue
            yield Line(
                path, first if begun else number, re.sub(r"\\(.)", r"\1", begun + line).strip()
            )
            begun = ""

    def _include(self, line: Line, word: str, depth: int) -> Iterator[Line]:
        if not word or not word.isprintable():
            self.faults.line(line, f"it includes {shown(word)}, which is no file")
            return
        for path in self.included(line.file.parent, word):
            if depth >= DEEPEST or self.files >= MOST_FILES:
                self.faults.line(line, "too many files include each other")
                return
            try:
                yield from self.read(path, depth + 1)
            except OSError as fault:
                self.faults.line(line, f"{fault.filename}: {fault.strerror}")


def fields(line: Line, faults: Faults) -> Fields:
    """KEY=VALUE of a line, keys in lower case; what is not so is a fault."""
    found: Fields = {}
    at = 0
    while pair := PAIR.match(line.text, at):
        found[pair[1].lower()] = pair[2].strip('"')
        at = pair.end()
    if line.text[at:].strip():
        faults.line(line, f"{shown(line.text[at:].strip())} is not KEY=VALUE")
    return found
