"""What a program is to do next, for checks that say it while it runs."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path

POLL_S = 0.01
END = "end"


def orders(folder: str = "") -> Iterator[str]:
    """The lines of the input until it ends; or what the files 0, 1, ... of a folder say, when they
    appear, until one says `end`: a program that is saved and restored has no input of ours."""
    if not folder:
        yield from sys.stdin
        return
    n = 0
    while (order := _order(Path(folder, str(n)))) != END:
        yield order
        n += 1


def _order(file: Path) -> str:
    while not file.exists():
        time.sleep(POLL_S)
    return file.read_text()


def give(folder: Path, n: int, order: str) -> None:
    """All of it at once."""
    fresh = folder / f"{n}.new"
    fresh.write_text(order)
    fresh.rename(folder / str(n))
