"""Records the arbiter's events and actions, for leased/sim/replay.py.

Lines are made after the messages of an event have been sent, and written by another thread. A
fault of the disk ends the record and nothing else.
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from leased import __version__
from leased.core.actions import Action
from leased.core.arbiter import Arbiter
from leased.core.events import Event
from leased.record import lines, snapshot
from leased.record.lines import End, Header, Outcome, Start
from leased.record.record_file import LAST_S, RecordFile

log = logging.getLogger("gpu-leased")

AGAIN = "it begins again when the configuration is read again"


class Recorder:
    """Off until it is configured. soon: calls a function when nothing more urgent is waiting."""

    def __init__(self, soon: Callable[[Callable[[], None]], object]):
        self.soon = soon
        self.path: Path | None = None
        self.most = 0  # bytes of both files
        self.file: RecordFile | None = None
        self.before: RecordFile | None = None  # what was told to end
        self.arbiter: Arbiter | None = None
        self.pending: list[tuple[int, Event, Outcome]] = []

    def configure(self, path: Path | None, most: int) -> None:
        """Record into this file from now on; None: do not record."""
        self.most = most
        if path == self.path and self.file is not None and not self.file.over:
            return
        self.flush()
        self._end("the configuration was changed")
        self.path = path
        if self.arbiter is not None:
            self._begin(snapshot.take(self.arbiter) if path else None)

    def attach(self, arbiter: Arbiter) -> None:
        """Record this arbiter, which has not taken any event yet."""
        self.arbiter = arbiter
        self._begin(None)

    def take(
        self, now: int, event: Event, actions: Iterable[Action], fault: str | None = None
    ) -> None:
        """The arbiter has taken an event, and wants these actions or has failed."""
        if self.file is None:
            return
        self.pending.append((now, event, Outcome(tuple(actions), fault)))
        if len(self.pending) == 1:
            self.soon(self.flush)

    def flush(self) -> None:
        """Hand over what has been taken to be written, and begin another file where one is full."""
        pending, self.pending = self.pending, []
        if self.file is None or not pending:
            return
        self.file.write(b"".join(lines.entry_line(*entry) for entry in pending))
        if self.file.over:
            self._end("a fault")
        elif self.file.is_behind():
            self._give_up("the disk is too slow for it")
        elif self.file.size > self.most // 2:
            self._turn(self.file)

    def close(self) -> None:
        """The daemon ends. What has been given up may still have to be written."""
        self.flush()
        self._end("gpu-leased ended", LAST_S)
        if self.before is not None:
            self.before.wait(LAST_S)

    # -- files ---------------------------------------------------------------------------

    def _begin(self, state: list[object] | None) -> None:
        if self.path is not None:
            say = functools.partial(_say, self.path)
            self.file = RecordFile(self.path, self._header(state), say, self.before)
            self.before = None

    def _turn(self, file: RecordFile) -> None:
        assert self.arbiter is not None
        try:
            header = self._header(snapshot.take(self.arbiter))
        except TypeError as fault:  # a fault of ours
            self._give_up(str(fault))
            return
        if len(header) > self.most // 4:
            self._give_up("daemon.record_most is too small for the state of all tenants")
        else:
            file.begin(header)

    def _header(self, state: list[object] | None) -> bytes:
        assert self.arbiter is not None
        start = Start.of(self.arbiter)
        return lines.header_line(Header(__version__, time.time(), start, state))

    def _give_up(self, why: str) -> None:
        assert self.path is not None
        self._end(why)
        _say(self.path, why)

    def _end(self, why: str, wait_s: float = 0.0) -> None:
        if self.file is not None:
            self.file.end(lines.end_line(End(why)), wait_s)
            self.before, self.file = self.file, None


def _say(path: Path, why: str) -> None:
    log.error("the record %s ends: %s; leases go on, and %s", path, why, AGAIN)
