"""What memory has and the disk has not."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

Put = Callable[..., None]  # (connection, what...): bring it on the disk to what memory says
Change = tuple[Put, tuple[object, ...]]


class Changes:
    """Who writes each change, and of what; the oldest first. One that is made again waits once.

    durable: among them is something to be synced to the disk.
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
        """These come before all that waits."""
        self._waiting = dict.fromkeys(changes) | self._waiting

    def take(self) -> list[Change]:
        """All that wait, which wait no more."""
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def written(self) -> None:
        """The disk has it all."""
        self._waiting.clear()
        self.durable = False

    def write(self, db: sqlite3.Connection) -> None:
        """In one transaction. sqlite3.Error: nothing of it is on the disk; all of it waits."""
        # FULL syncs the log at a commit, and with it all that was committed before.
        db.execute(f"PRAGMA synchronous={'FULL' if self.durable else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE")
        try:
            for put, what in self._waiting:
                put(db, *what)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
