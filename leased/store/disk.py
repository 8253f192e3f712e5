"""The store's file while it is open for writing, and the messages where it cannot be written."""

from __future__ import annotations

import errno
import logging
import os
import sqlite3
import time
from pathlib import Path

from leased.store import database
from leased.store.codes import FULL, code_of
from leased.store.syncer import Syncer

log = logging.getLogger("gpu-leased")

SAY_AGAIN_S = 60.0
HEAD = b"SQLite format 3\0"
LOG_HEADS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")


class OpenFile:
    """The file as it was when it was opened. SQLite does not notice when its file is removed,
    replaced or cut, and goes on writing what nobody will ever read."""

    def __init__(self, path: Path):
        self.path = path
        self.log_path = path.with_name(path.name + "-wal")
        self.has_log = False
        # This stays open, since closing it would give up SQLite's own locks on the file.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def spoilt(self) -> str:
        """What has happened to the file; "": nothing. OSError: it cannot be found out."""
        try:
            if not os.path.samestat(self.path.stat(), os.fstat(self.fd)):
                return "it was replaced while it was open"
        except FileNotFoundError:
            return "it was removed while it was open"
        if os.pread(self.fd, len(HEAD), 0) != HEAD:
            return "it was overwritten while it was open"
        try:
            with self.log_path.open("rb") as file:
                begun = file.read(4) in LOG_HEADS
        except FileNotFoundError:
            begun = False
        if self.has_log and not begun:
            return "its log was removed or cut while it was open"
        self.has_log = begun
        return ""

    def close(self) -> None:
        os.close(self.fd)


class Disk:
    """db: None: the file is not open. fault: why it lacks what memory has; None: it lacks nothing.

    Every method may raise sqlite3.Error or OSError where the disk fails, unless it says otherwise.
    """

    def __init__(self, path: Path):
        self.path = path
        self.db: sqlite3.Connection | None = None
        self._syncer = Syncer(path)
        self._fault: str | None = None
        self._file: OpenFile | None = None
        self._said = 0.0

    @property
    def fault(self) -> str | None:
        error = self._syncer.error
        if self._fault is None and error is not None:
            return f"{self.path} cannot be synced ({error})"
        return self._fault

    def open(self) -> sqlite3.Connection:
        """Open the file if it is closed. Refused: a newer release's, or others may write there."""
        if self.db is None:
            self.db = database.connect(self.path)
            self._file = OpenFile(self.path)
        return self.db

    def close(self) -> None:
        self._syncer.close()
        if self.db is not None:
            self.db.close()
        if self._file is not None:
            self._file.close()
        self.db = self._file = None

    def spoilt(self) -> str:
        """What has happened to the file since it was opened; "": nothing."""
        return self._file.spoilt() if self._file is not None else ""

    def let_go(self, why: object, *, in_memory: bool) -> None:
        """Set the file aside, as it cannot be used any more; the next open() begins a new one."""
        database.set_aside(self.path, why, in_memory=in_memory)
        self.close()

    def failed(self, fault: Exception) -> None:
        """Log why the file cannot be written, but not every second. Raises nothing."""
        hint = "make room on its disk" if _is_full(fault) else "see its disk and who may write"
        words = (
            f"{self.path} cannot be written ({fault}): leases go on, and usage and settings "
            f"are kept in memory until it can; {hint}"
        )
        now = time.monotonic()
        if words != self._fault or now - self._said > SAY_AGAIN_S:
            log.error("%s", words)
            self._said = now
        self._fault = words

    def written(self, *, durable: bool) -> None:
        """The file was written; it is synced too if that is to be durable, and the last sync that
        failed is tried again."""
        error = self._syncer.error
        if durable or error is not None or self._syncer.log_is_long():
            self._syncer.begin()
        if error is not None:
            self.failed(error)
        elif self._fault is not None:
            log.warning("%s can be written again, and is complete", self.path)
            self._fault = None


def _is_full(fault: Exception) -> bool:
    return code_of(fault) == FULL or getattr(fault, "errno", 0) == errno.ENOSPC
