"""The changes that memory has and the disk lacks."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

Put = Callable[..., None]  # (connection, what...): writes to the disk what memory has of it
Change = tuple[Put, tuple[object, ...]]


class Changes:
    """The changes that wait, the oldest first. A change that is made again waits once.

    durable: one of them must be synced to the disk.
    """

    def __init__(self) -> None:
        self._waiting: dict[Change, None] = {}
        self.durable = False

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def __contains__(self, change: Change) -> bool:
        return change in self._waiting

    def mark(self, put: Put, *what: object) -> None:
        self._waiting[put, what] = None

    def mark_first(self, changes: Iterable[Change]) -> None:
        """Let these changes wait before all others."""
        self._waiting = dict.fromkeys(changes) | self._waiting

    def take(self) -> list[Change]:
        """Take out all changes that wait."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def written(self) -> None:
        """The disk has all changes."""
        self._waiting.clear()
        self.durable = False

    def write(self, db: sqlite3.Connection) -> None:
        """Write all in one transaction. sqlite3.Error: none is on the disk, and all still wait."""
        db.execute("BEGIN IMMEDIATE")
        try:
            for put, what in self._waiting:
                put(db, *what)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
