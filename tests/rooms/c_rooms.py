"""Who calls whom among C files, as their objects and includes say, and the rules for that.

A file calls another when its object needs a symbol, a function or a variable, that the other's
object defines, or when it includes the other's header. Files stand in rooms, which have an order:
folders, or in a folder without any the files themselves, with their headers. A file may call only
files of its own room and of rooms before it. And no files call each other in a circle.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
DEFINED = "TDBRVWCG"


@dataclass(frozen=True)
class Arrow:
    """One file needs something of another; paths are relative to the folder of the rooms."""

    source: str
    target: str
    what: str

    def __str__(self) -> str:
        return f"{self.source} -> {self.target} ({self.what})"


@dataclass
class Symbols:
    """What an object defines for others, and what it needs of others."""

    defined: set[str] = field(default_factory=set)
    needed: set[str] = field(default_factory=set)


def symbols(built: Sequence[Path]) -> dict[Path, Symbols]:
    """The symbols of each object, which one program reads of them all."""
    command = ["nm", "--format=posix", "--print-file-name", *map(str, built)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True)
    found = {path: Symbols() for path in built}
    for line in listed.stdout.splitlines():
        path, _, symbol = line.partition(": ")
        name, kind = symbol.split()[:2]
        if kind in DEFINED:
            found[Path(path)].defined.add(name)
        elif kind == "U":
            found[Path(path)].needed.add(name)
    return found


def objects_of(top: Path, *folders: Path) -> dict[Path, str]:
    """The objects that meson has put into these folders, with the C files below `top` that they
    are of."""
    names = [str(path.relative_to(top)) for path in sorted(top.rglob("*.c"))]
    paths = {folder / f"{name.replace('/', '_')}.o": name for folder in folders for name in names}
    return {path: name for path, name in paths.items() if path.exists()}


def calls(top: Path, *folders: Path) -> Iterator[Arrow]:
    """The arrows between the C files below a folder whose objects meson has put into others."""
    built = objects_of(top, *folders)
    if not built:
        raise FileNotFoundError(f"no objects of {top} in {folders}: run `make setup`")
    needs: dict[str, set[str]] = {}
    homes: dict[str, str] = {}
    for path, found in symbols(list(built)).items():
        needs[built[path]] = found.needed
        homes |= dict.fromkeys(found.defined, built[path])
    for name, wanted in needs.items():
        for symbol in sorted(wanted):
            if homes.get(symbol, name) != name:
                yield Arrow(name, homes[symbol], symbol)


def includes(top: Path) -> Iterator[Arrow]:
    """The arrows to headers; a header is named from the top or from beside the file."""
    for path in sorted(top.rglob("*.[ch]")):
        for header in INCLUDE.findall(path.read_text()):
            found = top / header if (top / header).exists() else path.parent / header
            if found.exists():
                target = str(found.resolve().relative_to(top.resolve()))
                yield Arrow(str(path.relative_to(top)), target, "#include")


def upwards(arrows: Sequence[Arrow], rooms: Sequence[str]) -> list[str]:
    """The arrows from a room to one after it; a file in no room is an error as well."""
    place = {room: number for number, room in enumerate(rooms)}
    wrong = []
    for arrow in arrows:
        source, target = (Path(Path(n).parts[0]).stem for n in (arrow.source, arrow.target))
        if source not in place or target not in place:
            wrong.append(f"in no room: {arrow}")
        elif place[source] < place[target]:
            wrong.append(f"upwards: {arrow}")
    return wrong


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """The files that a file calls, and that those call, and so on."""
    seen: set[str] = set()
    left = [start]
    while left:
        more = graph[left.pop()] - seen
        seen |= more
        left += more
    return seen


def circles(arrows: Sequence[Arrow]) -> list[str]:
    """The arrows whose target comes back to their source."""
    graph: dict[str, set[str]] = defaultdict(set)
    for arrow in arrows:
        graph[arrow.source].add(arrow.target)
    from_file = {name: reached(graph, name) for name in list(graph)}
    back = [arrow for arrow in arrows if arrow.source in from_file.get(arrow.target, ())]
    return [f"in a circle: {arrow}" for arrow in back]


def broken(top: Path, *folders: Path, rooms: Sequence[str] = ()) -> list[str]:
    """Each rule that the C files below `top` break, with the files and the symbol."""
    called, included = list(calls(top, *folders)), list(includes(top))
    wrong = upwards(called + included, rooms) if rooms else []
    return wrong + circles(called) + circles(included)
