"""What must survive the daemon: tenants and their usage, what the site has set, in SQLite.

What is promised. Everything is kept in memory first and then written, so a disk
that is full or read-only stops nothing: what could not be written stays in
memory, is said in `fault`, and is written as soon as it can be. After a crash of
the daemon all that was written is there. After a loss of power the file is
sound (write-ahead log), the end of a tenant and a setting are there (they are
synced to the disk), and of tenants that still ran the last usage may be missing
(as much as the kernel had not written back, some 30 s).
"""

from __future__ import annotations

import contextlib
import errno
import logging
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from leased import database, tables
from leased.arbiter import Usage
from leased.errors import Refused
from leased.identity import ProcessId
from leased.tables import Kept, TenantRecord

log = logging.getLogger("gpu-leased")

__all__ = ["Store", "TenantRecord"]

KEEP_WRITTEN_S = 30 * 86400
SAY_AGAIN_S = 60.0
Put = Callable[..., None]  # (connection, what...): bring it on the disk to what memory says


class Store:
    """The database at `path`, made if missing. Writing never raises; see `fault`.

    fault: why the disk lacks what memory has, a sentence; None: it lacks nothing.
    Refused: the file is a newer release's.
    """

    def __init__(self, path: Path):
        self.path = path
        self.fault: str | None = None
        self._said = 0.0
        self._kept: dict[int, Kept] = {}  # tenants that are open or not in Slurm's accounting
        self._stepds: dict[int, tuple[ProcessId, int]] = {}
        self._settings: dict[tuple[str, str], str] = {}
        self._epoch: int | None = None
        # What memory has and the disk has not: who writes it, and of what; oldest change first.
        self._dirty: dict[tuple[Put, tuple[int | str, ...]], None] = {}
        self._durable = False  # among them is something to be synced
        self._db: sqlite3.Connection | None = None
        self._begin()
        if self._epoch is None:
            # Epochs must be above those of a database that was lost: us of the clock are.
            self._epoch = int(time.time() * 1e6)

    def _begin(self) -> None:
        try:
            self._db = database.connect(self.path)
            self._load(self._db)
        except (sqlite3.Error, OSError) as fault:
            self._failed(fault)
            with contextlib.suppress(sqlite3.Error):
                db = database.connect_to_read(self.path)
                try:
                    self._load(db)
                finally:
                    db.close()

    def close(self) -> None:
        if self._dirty:
            self.flush()
        if self._db is not None:
            self._db.close()
            self._db = None

    # -- what the daemon tells --------------------------------------------------

    def open_tenant(self, record: TenantRecord) -> None:
        """A tenant begins (again: a requeued job starts anew)."""
        self._kept[record.job_id] = Kept(record, time.time())
        self._mark(self._put_tenant, record.job_id)
        self._mark(self._put_usage, record.job_id)
        self.flush()

    def widen(self, job_id: int, gang: tuple[str, ...]) -> None:
        """The tenant has more devices from now on."""
        kept = self._kept[job_id]
        kept.record = replace(kept.record, gang=gang)
        self._mark(self._put_tenant, job_id)
        self.flush()

    def add_stepd(self, process: ProcessId, job_id: int) -> None:
        """A slurmstepd has registered; where Slurm uses no cgroups its tasks are known by it."""
        self._stepds[process.pid] = (process, job_id)
        self._mark(self._put_stepd, process.pid)
        self.flush()

    def forget_stepd(self, pid: int) -> None:
        """A slurmstepd has ended; the disk learns it with the next change."""
        if self._stepds.pop(pid, None) is not None:
            self._mark(self._put_stepd, pid)

    def save(self, usage: Mapping[int, Mapping[str, Usage]], epoch: int) -> None:
        """The usage so far of many tenants, in one transaction, and the highest epoch."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._mark(self._put_epoch)
        for job_id, by_device in usage.items():
            self._set_usage(job_id, by_device)
        self.flush()

    def close_tenant(self, job_id: int, usage: Mapping[str, Usage]) -> None:
        """The tenant is over; its usage waits for Slurm's accounting."""
        self._set_usage(job_id, usage)
        if job_id in self._kept:
            self._kept[job_id].closed = time.time()
        for pid in [pid for pid, (_, job) in self._stepds.items() if job == job_id]:
            self.forget_stepd(pid)
        self._mark(self._put_tenant, job_id)
        self._durable = True
        self.flush()

    def mark_written(self, job_id: int) -> None:
        """Slurm's accounting has it; records older than a month are dropped."""
        if job_id in self._kept:
            self._kept[job_id].written = time.time()
            self._mark(self._put_tenant, job_id)
            self._mark(self._drop_old)
            self.flush()

    def put_setting(self, device: str, key: str, value: str | None) -> None:
        """What the site has set for a device's UUID or "*"; None: nothing any more.

        On the disk with the next flush(), so that several go together.
        """
        if value is None:
            self._settings.pop((device, key), None)
        else:
            self._settings[device, key] = value
        self._mark(self._put_setting, device, key)
        self._durable = True

    def _set_usage(self, job_id: int, usage: Mapping[str, Usage]) -> None:
        kept = self._kept.get(job_id)
        # A copy: what the arbiter goes on counting is not what the disk has.
        if kept is not None and kept.record.usage != usage:
            kept.record = _own(replace(kept.record, usage=usage))
            self._mark(self._put_usage, job_id)

    # -- what it asks -----------------------------------------------------------

    def stepds(self) -> dict[int, tuple[ProcessId, int]]:
        """By pid: the slurmstepds that registered, and their jobs. They may have ended since."""
        return dict(self._stepds)

    def settings(self) -> dict[tuple[str, str], str]:
        """What the site has set, by device (UUID or "*") and key."""
        return dict(self._settings)

    def epoch(self) -> int:
        """No lease before had a higher one, but for those since the last save."""
        return self._epoch or 0

    def open_tenants(self) -> list[TenantRecord]:
        """Tenants that are not over; their usage is the caller's to go on counting."""
        return [_own(kept.record) for kept in self._kept.values() if kept.closed is None]

    def unwritten(self) -> list[TenantRecord]:
        """Tenants that are over and not yet in Slurm's accounting, oldest first."""
        over = [k for k in self._kept.values() if k.closed is not None and k.written is None]
        return [kept.record for kept in sorted(over, key=lambda k: k.closed or 0)]

    def find(self, job_id: int) -> TenantRecord | None:
        """A tenant of now or of the last month. Refused: the disk cannot be read."""
        kept = self._kept.get(job_id)
        if kept is not None:
            return kept.record
        try:
            if self._db is None:
                raise Refused(self.fault or "the store is closed")
            found = tables.tenants(self._db, "job_id = ?", job_id)
        except sqlite3.Error as fault:
            raise Refused(f"{self.path} cannot be read: {fault}", "see its disk") from None
        return found[0].record if found else None

    # -- memory and disk --------------------------------------------------------

    def flush(self) -> None:
        """Write what the disk lacks, in one transaction. A fault is kept in `fault`."""
        if not self._dirty and self.fault is None:
            return
        try:
            if self._db is None:
                self._db = database.connect(self.path)
                self._load(self._db)
            self._write(self._db)
        except (sqlite3.Error, OSError, Refused) as fault:
            self._failed(fault)
            return
        self._dirty.clear()
        self._durable = False
        for job_id in [job for job, kept in self._kept.items() if kept.written is not None]:
            del self._kept[job_id]
        if self.fault is not None:
            log.warning("%s can be written again; nothing is missing there now", self.path)
            self.fault = None

    def _mark(self, put: Put, *what: int | str) -> None:
        self._dirty[put, what] = None

    def _write(self, db: sqlite3.Connection) -> None:
        # FULL syncs the log at a commit, and with it all that was committed before.
        db.execute(f"PRAGMA synchronous={'FULL' if self._durable else 'NORMAL'}")
        db.execute("BEGIN IMMEDIATE")
        try:
            for put, what in self._dirty:
                put(db, *what)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _failed(self, fault: Exception) -> None:
        """Say it, but not every second; a damaged file is set aside."""
        hint = "make room on its disk" if _is_full(fault) else "see its disk and who may write"
        words = (
            f"{self.path} cannot be written ({fault}): leases go on, and usage and settings "
            f"are kept in memory until it can; {hint}"
        )
        now = time.monotonic()
        if words != self.fault or now - self._said > SAY_AGAIN_S:
            log.error("%s", words)
            self._said = now
        self.fault = words
        if self._db is not None and database.is_damage(fault):
            with contextlib.suppress(OSError, sqlite3.Error):
                self._db.close()
                self._db = None
                database.set_aside(self.path, fault)
                self._mark_all()

    def _mark_all(self) -> None:
        """Nothing of what memory has is on the disk."""
        for job_id in self._kept:
            self._mark(self._put_tenant, job_id)
            self._mark(self._put_usage, job_id)
        for pid in self._stepds:
            self._mark(self._put_stepd, pid)
        for device, key in self._settings:
            self._mark(self._put_setting, device, key)
        self._mark(self._put_epoch)

    def _load(self, db: sqlite3.Connection) -> None:
        """Take what the disk has and memory has not."""
        for kept in tables.tenants(db, "closed IS NULL OR written IS NULL"):
            self._kept.setdefault(kept.record.job_id, kept)
        for process, job_id in tables.stepds(db):
            self._stepds.setdefault(process.pid, (process, job_id))
        for name, value in tables.settings(db).items():
            if (self._put_setting, name) not in self._dirty:
                self._settings.setdefault(name, value)
        epoch = tables.epoch(db)
        if epoch is not None:
            self._epoch = max(self._epoch or 0, epoch)

    def _put_tenant(self, db: sqlite3.Connection, job_id: int) -> None:
        if job_id in self._kept:
            tables.put_tenant(db, self._kept[job_id])

    def _put_usage(self, db: sqlite3.Connection, job_id: int) -> None:
        if job_id in self._kept:
            tables.put_usage(db, job_id, self._kept[job_id].record.usage)

    def _put_stepd(self, db: sqlite3.Connection, pid: int) -> None:
        tables.put_stepd(db, pid, self._stepds.get(pid))

    def _put_setting(self, db: sqlite3.Connection, device: str, key: str) -> None:
        tables.put_setting(db, device, key, self._settings.get((device, key)))

    def _put_epoch(self, db: sqlite3.Connection) -> None:
        tables.put_epoch(db, self.epoch())

    def _drop_old(self, db: sqlite3.Connection) -> None:
        tables.drop_written_before(db, time.time() - KEEP_WRITTEN_S)


def _own(record: TenantRecord) -> TenantRecord:
    """The record with counters of its own."""
    return replace(record, usage={uuid: replace(used) for uuid, used in record.usage.items()})


def _is_full(fault: Exception) -> bool:
    code = getattr(fault, "sqlite_errorcode", 0) or 0
    return code & 0xFF == sqlite3.SQLITE_FULL or getattr(fault, "errno", 0) == errno.ENOSPC
