"""Syncs the store's log to the disk in a thread of its own.

A sync takes as long as the disk wants, up to seconds where others write much. The daemon's loop
does not wait for it, since all leases of the node would stand still meanwhile. For the same reason
SQLite does not move its log into the file by itself, which syncs both: that is done here too. What
is left to the loop is SQLite's sync of the log's head when it begins the log anew, after LOG_MOST.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
from pathlib import Path
from urllib.parse import quote

LOG_MOST = 32 << 20  # bytes; a longer log is moved into the file


class Syncer:
    """error: what the last sync failed with; None: it did not."""

    def __init__(self, path: Path):
        self.path = path
        self.log_path = path.with_name(path.name + "-wal")
        self.error: OSError | sqlite3.Error | None = None
        self._wanted = threading.Event()
        self._thread: threading.Thread | None = None
        self._ends = False

    def begin(self) -> None:
        """Sync all that has been committed until now, as soon as what is under way is done."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="syncer", daemon=True)
            self._thread.start()
        self._wanted.set()

    def log_is_long(self) -> bool:
        """OSError: the disk does not say."""
        with contextlib.suppress(FileNotFoundError):
            return self.log_path.stat().st_size > LOG_MOST
        return False

    def close(self) -> None:
        """Wait for the sync that is under way."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._ends = True
            self._wanted.set()
            thread.join()
            self._ends = False

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            if self._ends:
                return
            try:
                self._sync()
                self.error = None
            except (OSError, sqlite3.Error) as fault:
                self.error = fault

    def _sync(self) -> None:
        with self.log_path.open("rb") as log:
            os.fsync(log.fileno())
        if self.log_is_long():
            self._move_log()

    def _move_log(self) -> None:
        """As far as nobody reads it; the daemon writes meanwhile."""
        name = f"file:{quote(str(self.path))}?mode=rw"
        with contextlib.closing(sqlite3.connect(name, uri=True)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)")
