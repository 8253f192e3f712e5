"""The store's contents in memory, and in its file as soon as that can be written."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from leased.base import job_names
from leased.base.errors import Refused
from leased.store import database, read_only
from leased.store.contents import Contents
from leased.store.disk import Disk
from leased.store.reading import Reader
from leased.store.records import TenantRecord

FOUND_MOST = 64  # runs, of an array that has had more on this node
LATEST = f"ORDER BY opened DESC LIMIT {FOUND_MOST}"


def _that_mean(job: int | str) -> tuple[str, tuple[object, ...]]:
    """The condition of SQL that job_names.means() is, and its values; an index serves each part."""
    if isinstance(job, int):
        return "job_id = ?", (job,)
    if not job.isdecimal():
        return "name = ?", (job,)
    parts = f"{job}_", f"{job}`", f"{job}+", f"{job},"  # with what follows _ and + in ASCII
    words = "(job_id = ? OR (name > ? AND name < ?) OR (name > ? AND name < ?))"
    return words, (int(job), *parts)


class SavedContents:
    """contents: change these, then flush(). Nothing but find() raises, once it is made.

    Refused: the file is a newer release's, or its directory is open to others.
    """

    def __init__(self, path: Path):
        self.path = path
        self.contents = Contents()
        self._disk = Disk(path)
        self._begin()

    def _begin(self) -> None:
        try:
            self.contents.take_in(self._disk.open())
        except (sqlite3.Error, OSError) as fault:
            self._failed(fault)
            self._disk.close()
            with contextlib.suppress(sqlite3.Error), read_only.connect_to_read(self.path) as db:
                self.contents.take_in(db)

    @property
    def fault(self) -> str | None:
        """Why the disk lacks what memory has, a sentence; None: it lacks nothing."""
        return self._disk.fault

    def close(self) -> None:
        if self.contents.changes:
            self.flush()
        self._disk.close()

    def runs(self, job_id: int) -> list[TenantRecord]:
        """The ended runs of a job, oldest first; those on the disk too where it can be read."""
        with contextlib.suppress(sqlite3.Error):
            return self._runs(job_id)
        return self.contents.runs(job_id)

    def find(self, job: int | str) -> list[TenantRecord]:
        """The last run of each job that this means (leased/base/job_names.py), of now or of the
        last month; of many, the last ones. Refused: the disk cannot be read."""
        kept = [*self.contents.ended.values(), *self.contents.open.values()]
        known = [record for record in kept if job_names.means(job, record.job_id, record.job)]
        if not known and self._disk.db is None:
            raise Refused(self.fault or "the store is closed")
        last: dict[int, TenantRecord] = {}
        for record in sorted([*self._on_disk(job), *known], key=lambda record: record.opened):
            last[record.job_id] = record
        return list(last.values())[-FOUND_MOST:]

    def _on_disk(self, job: int | str) -> list[TenantRecord]:
        """Ended runs; none where the disk is closed."""
        if self._disk.db is None:
            return []
        where, values = _that_mean(job)
        try:
            return Reader(self._disk.db).ended(f"{where} {LATEST}", *values)
        except sqlite3.Error as fault:
            raise Refused(f"{self.path} cannot be read: {fault}", "see its disk") from None

    def _runs(self, job_id: int) -> list[TenantRecord]:
        found = {record.run: record for record in self.contents.runs(job_id)}
        if self._disk.db is not None:
            for record in Reader(self._disk.db).ended("job_id = ?", job_id):
                found.setdefault(record.run, record)
        return [found[run] for run in sorted(found)]

    def flush(self) -> None:
        """Write what the disk lacks, in one transaction. A fault is kept in `fault`."""
        if not self.contents.changes and self.fault is None:
            return
        try:
            if spoilt := self._disk.spoilt():
                self._let_go(spoilt)
            self.contents.take_in(self._disk.open())
            self.contents.changes.write(self._disk.open())
            self._disk.written(durable=self.contents.changes.durable)
        except (sqlite3.Error, OSError, Refused) as fault:
            self._failed(fault)
            return
        self.contents.written()

    def _let_go(self, why: object) -> None:
        """Set the file aside, and write all to a new one. OSError: it cannot be renamed."""
        self._disk.let_go(why, in_memory=self.contents.loaded)
        self.contents.mark_all()

    def _failed(self, fault: Exception) -> None:
        """Log the fault, and set a damaged file aside."""
        self._disk.failed(fault)
        if database.is_read_only(fault):
            self._disk.close()  # one that was opened so stays so
        if self._disk.db is not None and database.is_damage(fault):
            with contextlib.suppress(OSError, sqlite3.Error):
                self._let_go(fault)
