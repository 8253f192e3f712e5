"""For how long processes were ready to compute and had no processor, as the kernel counts it.

`python -m tests.bench.processor_waits LOG -- MODULE ...`: runs a module whose main thread is an
asyncio loop, and notes in LOG each time at which that thread had waited: until when (ns of its
monotonic clock) and for how long.
"""

from __future__ import annotations

import os
import runpy
import selectors
import struct
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROW = struct.Struct("=QQ")

Span = tuple[int, int]  # from, to: ns


class Delay:
    """Of the thread that makes it."""

    def __init__(self) -> None:
        self.file = os.open("/proc/thread-self/schedstat", os.O_RDONLY)
        self.last = self._so_far()

    def _so_far(self) -> int:
        return int(os.pread(self.file, 64, 0).split()[1])

    def more(self) -> int:
        """For how many ns it has waited since this was last called."""
        before, self.last = self.last, self._so_far()
        return self.last - before


def spans(log: Path, ahead_ns: int) -> Iterator[Span]:
    """ahead_ns: how far the clock of the log is ahead of this machine's."""
    data = log.read_bytes()
    for until, waited in ROW.iter_unpack(data[: len(data) // ROW.size * ROW.size]):
        yield until - ahead_ns - waited, until - ahead_ns


def covered(within: Span, by: Iterable[Span]) -> int:
    """How many ns of the one span the others cover, each once."""
    total, at = 0, within[0]
    for span in sorted(by):
        begun, ended = max(span[0], at), min(span[1], within[1])
        if ended > begun:
            total, at = total + ended - begun, ended
    return total


def note_waits(log: Path) -> None:
    """Of this thread's loop, which is not made yet: before it looks for what has happened, and when
    it has been woken."""
    file, delay = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), Delay()

    class Noted(selectors.EpollSelector):
        def select(self, timeout: float | None = None) -> Any:
            self.note()
            found = super().select(timeout)
            self.note()
            return found

        def note(self) -> None:
            if waited := delay.more():
                os.write(file, ROW.pack(time.monotonic_ns(), waited))

    selectors.DefaultSelector = Noted  # type: ignore[misc, assignment]


def main(arguments: Sequence[str]) -> None:
    log, _, module, *others = arguments
    note_waits(Path(log))
    sys.argv = [module, *others]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(sys.argv[1:])
