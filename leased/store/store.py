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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from leased.base.errors import Refused
from leased.core.policy import PolicyState
from leased.core.usage import Usage, together
from leased.processes.identity import ProcessId
from leased.store import database, tables
from leased.store.registrations import Registration, Registrations
from leased.store.tables import Bad, Reader, Run, TenantRecord

log = logging.getLogger("gpu-leased")

__all__ = ["Run", "Store", "TenantRecord"]

KEEP_SETTLED_S = 30 * 86400
KEEP_SETTLED = 100_000  # runs
DROP_OLD_S = 3600.0
SAY_AGAIN_S = 60.0
JOBS_NAMED = 20  # of those that a line of the log is about

Put = Callable[..., None]  # (connection, what...): bring it on the disk to what memory says


class Store:
    """The database at `path`, made if missing. Writing never raises; see `fault`.

    registrations: of open tenants, for a daemon that finds this database lost; None: not kept.
    fault: why the disk lacks what memory has, a sentence; None: it lacks nothing.
    Refused: the file is a newer release's, or its directory is open to others.
    """

    def __init__(self, path: Path, registrations: Registrations | None = None):
        self.path = path
        self.registrations = registrations
        self.fault: str | None = None
        self._said = 0.0
        self._open: dict[int, TenantRecord] = {}  # by job
        self._ended: dict[Run, TenantRecord] = {}  # those not in Slurm's accounting
        # Of open runs that memory had before it could read the disk: what the disk had of them.
        self._before: dict[Run, Mapping[str, Usage]] = {}
        self._stepds: dict[int, tuple[ProcessId, int]] = {}
        self._settings: dict[tuple[str, str], str] = {}
        self._epoch: int | None = None
        # What memory has and the disk has not: who writes it, and of what; oldest change first.
        self._dirty: dict[tuple[Put, tuple[object, ...]], None] = {}
        self._durable = False  # among them is something to be synced
        self._db: sqlite3.Connection | None = None
        self._file: database.OpenFile | None = None
        self._loaded = False  # memory has all that the disk had
        self._dropped_at = 0.0
        self._begin()
        if self._epoch is None:
            # Epochs must be above those of a database that was lost: us of the clock are.
            self._epoch = int(time.time() * 1e6)
        self._compare_registrations()

    def _begin(self) -> None:
        try:
            self._connect()
        except (sqlite3.Error, OSError) as fault:
            self._failed(fault)
            self._close()
            with contextlib.suppress(sqlite3.Error), database.connect_to_read(self.path) as db:
                self._take_in(db)

    def _connect(self) -> sqlite3.Connection:
        if self._db is None:
            self._db = database.connect(self.path)
            self._file = database.OpenFile(self.path)
        self._take_in(self._db)
        return self._db

    def close(self) -> None:
        if self._dirty:
            self.flush()
        self._close()

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
        if self._file is not None:
            self._file.close()
        self._db = self._file = None

    # -- what the daemon tells --------------------------------------------------

    def open_tenant(self, record: TenantRecord) -> None:
        """A run of a job begins. One of that job that is open still has ended unnoticed."""
        before = self._open.get(record.job_id)
        if before is not None:
            self._end(before)
        runs = [run for run in self._ended if run[0] == record.job_id]
        opened = max([time.time(), *(opened + 1e-3 for _, opened in runs)])
        self._open[record.job_id] = replace(record, opened=opened, closed=None, settled=None)
        self._mark_open(record.job_id)
        self.flush()
        self._register(record.job_id)

    def widen(self, job_id: int, totals: Mapping[str, int]) -> None:
        """The tenant has more devices from now on. totals: bytes that it sees of all of them."""
        record = self._open[job_id]
        self._open[job_id] = replace(record, gang=tuple(totals), totals=dict(totals))
        self._mark(self._put_open, job_id)
        self.flush()
        self._register(job_id)

    def resolve(self, job_id: int, options: str, totals: Mapping[str, int]) -> None:
        """What the tenant was given, where a release before did not say it in full."""
        record = self._open[job_id]
        if (record.options, record.totals) != (options, totals):
            self._open[job_id] = replace(record, options=options, totals=dict(totals))
            self._mark(self._put_open, job_id)
            self._register(job_id)

    def add_stepd(self, process: ProcessId, job_id: int) -> None:
        """A slurmstepd has registered; where Slurm uses no cgroups its tasks are known by it."""
        self._stepds[process.pid] = (process, job_id)
        self._mark(self._put_stepd, process.pid)
        self.flush()
        self._register(job_id)

    def forget_stepd(self, pid: int) -> None:
        """A slurmstepd has ended; the disk learns it with the next change."""
        if self._stepds.pop(pid, None) is not None:
            self._mark(self._put_stepd, pid)

    def save(
        self,
        usage: Mapping[int, Mapping[str, Usage]],
        epoch: int,
        remembered: Mapping[int, PolicyState] | None = None,
        parked: Mapping[int, str | None] | None = None,
    ) -> None:
        """The usage so far of many tenants, what their policies remember of them and who parked
        them (None: nobody), in one transaction, and the highest epoch."""
        if epoch != self._epoch:
            self._epoch = epoch
            self._mark(self._put_epoch)
        for job_id, by_device in usage.items():
            self._set_usage(job_id, by_device)
        for job_id, state in (remembered or {}).items():
            self._set_remembered(job_id, state if state.state else None)
        for job_id, who in (parked or {}).items():
            self._set_parked(job_id, who)
        self.flush()

    def close_tenant(self, job_id: int, usage: Mapping[str, Usage]) -> None:
        """The tenant is over; its usage waits for Slurm's accounting."""
        self._set_usage(job_id, usage)
        record = self._open.pop(job_id, None)
        if record is not None:
            self._end(record)
        for pid in [pid for pid, (_, job) in self._stepds.items() if job == job_id]:
            self.forget_stepd(pid)
        self.flush()
        if self.registrations is not None:
            self.registrations.remove(job_id)

    def _end(self, record: TenantRecord) -> None:
        closed = max(time.time(), record.opened) if record.closed is None else record.closed
        self._ended[record.run] = replace(record, closed=closed, remembered=None, parked_by=None)
        self._before.pop(record.run, None)
        self._mark_open(record.job_id)
        self._mark(self._put_ended, record.run)
        self._durable = True

    def settle(self, runs: Iterable[Run]) -> None:
        """They wait for Slurm's accounting no more; old ones are forgotten."""
        for run in runs:
            if run in self._ended:
                self._ended[run] = replace(self._ended[run], settled=time.time())
                self._mark(self._put_ended, run)
        now = time.monotonic()
        if now - self._dropped_at > DROP_OLD_S or not self._dropped_at:
            self._dropped_at = now
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
        record = self._open.get(job_id)
        if record is None:
            return
        before = self._before.get(record.run)
        usage = together(before, usage) if before else usage
        # A copy: what the arbiter goes on counting is not what the disk has.
        if record.usage != usage:
            self._open[job_id] = _own(replace(record, usage=usage))
            self._mark(self._put_usage, job_id)

    def _set_remembered(self, job_id: int, remembered: PolicyState | None) -> None:
        record = self._open.get(job_id)
        if record is not None and record.remembered != remembered:
            self._open[job_id] = replace(record, remembered=remembered)
            self._mark(self._put_remembered, job_id)

    def _set_parked(self, job_id: int, who: str | None) -> None:
        record = self._open.get(job_id)
        if record is not None and record.parked_by != who:
            self._open[job_id] = replace(record, parked_by=who)
            self._mark(self._put_parked, job_id)

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
        return [_own(record) for record in self._open.values()]

    def unsettled(self) -> list[TenantRecord]:
        """Ended runs that are not in Slurm's accounting yet, oldest first."""
        waiting = (record for record in self._ended.values() if record.settled is None)
        return sorted(waiting, key=lambda record: record.closed or 0)

    def runs(self, job_id: int) -> list[TenantRecord]:
        """The ended runs of a job, oldest first; those on the disk too where it can be read."""
        with contextlib.suppress(sqlite3.Error):
            return self._runs(job_id)
        return self._in_memory(job_id)

    def find(self, job_id: int) -> TenantRecord | None:
        """A job's last run, of now or of the last month. Refused: the disk cannot be read."""
        known = self._open.get(job_id) or next(reversed(self._in_memory(job_id)), None)
        if known is not None:
            return known
        if self._db is None:
            raise Refused(self.fault or "the store is closed")
        try:
            return next(reversed(self._runs(job_id)), None)
        except sqlite3.Error as fault:
            raise Refused(f"{self.path} cannot be read: {fault}", "see its disk") from None

    def _in_memory(self, job_id: int) -> list[TenantRecord]:
        return [self._ended[run] for run in sorted(self._ended) if run[0] == job_id]

    def _runs(self, job_id: int) -> list[TenantRecord]:
        found = {record.run: record for record in self._in_memory(job_id)}
        if self._db is not None:
            for record in Reader(self._db).ended("job_id = ?", job_id):
                found.setdefault(record.run, record)
        return [found[run] for run in sorted(found)]

    # -- registrations ----------------------------------------------------------

    def _register(self, job_id: int) -> None:
        """Its file is to say what is known now."""
        record = self._open.get(job_id)
        if self.registrations is not None and record is not None:
            stepds = tuple(process for process, job in self._stepds.values() if job == job_id)
            self.registrations.put(Registration(record, stepds))

    def _compare_registrations(self) -> None:
        """Jobs of which the database knows nothing go on with their files, and those without
        files get them."""
        if self.registrations is None:
            return
        kept = self.registrations.jobs()
        lost = sorted(kept - self._open.keys())
        taken = [job_id for job_id in lost if self._take_over(job_id, self.registrations)]
        if taken:
            log.warning(
                "%s lacks %d jobs, which go on as they were registered; their usage up to now is "
                "lost: %s",
                *(self.path, len(taken), _listed(taken)),
            )
        for job_id in self._open.keys() - kept:
            self._register(job_id)

    def _take_over(self, job_id: int, registrations: Registrations) -> bool:
        """False: there is nothing to take over."""
        found = registrations.read(job_id)
        if found is None:
            return False
        if any(ended.run == found.record.run for ended in self.runs(job_id)):
            registrations.remove(job_id)  # the daemon before had no time for that
            return False
        self._open[job_id] = found.record
        self._mark_open(job_id)
        for process in found.stepds:
            self._stepds.setdefault(process.pid, (process, job_id))
            self._mark(self._put_stepd, process.pid)
        return True

    # -- memory and disk --------------------------------------------------------

    def flush(self) -> None:
        """Write what the disk lacks, in one transaction. A fault is kept in `fault`."""
        if not self._dirty and self.fault is None:
            return
        try:
            self._check_file()
            self.write_what_waits(self._connect())
        except (sqlite3.Error, OSError, Refused) as fault:
            self._failed(fault)
            return
        self._dirty.clear()
        self._durable = False
        for run in [run for run, record in self._ended.items() if record.settled is not None]:
            del self._ended[run]
        if self.fault is not None:
            log.warning("%s can be written again; nothing is missing there now", self.path)
            self.fault = None

    def _mark(self, put: Put, *what: object) -> None:
        self._dirty[put, what] = None

    def _mark_open(self, job_id: int) -> None:
        """All that the disk has of an open tenant."""
        for put in (self._put_open, self._put_usage, self._put_remembered, self._put_parked):
            self._mark(put, job_id)

    def _check_file(self) -> None:
        spoilt = self._file.spoilt() if self._file is not None else ""
        if spoilt:
            self._let_go(spoilt)

    def _let_go(self, why: object) -> None:
        """The file is no good any more: a new one gets what memory has. OSError: it is stuck."""
        database.set_aside(self.path, why, in_memory=self._loaded)
        self._close()
        self._mark_all()

    def write_what_waits(self, db: sqlite3.Connection) -> None:
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
        if database.is_read_only(fault):
            self._close()  # one that was opened so stays so
        if self._db is not None and database.is_damage(fault):
            with contextlib.suppress(OSError, sqlite3.Error):
                self._let_go(fault)

    def _mark_all(self) -> None:
        """Nothing of what memory has is on the disk."""
        before = [put for put in self._dirty if put[0] is not tables.put_aside]
        self._dirty.clear()
        for job_id in self._open:
            self._mark_open(job_id)
        for run in self._ended:
            self._mark(self._put_ended, run)
        for pid in self._stepds:
            self._mark(self._put_stepd, pid)
        for device, key in self._settings:
            self._mark(self._put_setting, device, key)
        self._mark(self._put_epoch)
        self._dirty |= dict.fromkeys(before)

    def _take_in(self, db: sqlite3.Connection) -> None:
        """Once: what the disk has and memory has not."""
        if self._loaded:
            return
        reader = Reader(db)
        for record in reader.tenants():
            # An older release leaves those there that it has closed.
            is_open = record.closed is None
            if self._add_before(record):
                continue
            if not is_open or self._open.setdefault(record.job_id, record).run != record.run:
                self._end(record)
        for record in reader.ended("written IS NULL"):
            self._ended.setdefault(record.run, record)
        for process, job_id in reader.stepds():
            self._stepds.setdefault(process.pid, (process, job_id))
        for name, value in reader.settings().items():
            if (self._put_setting, name) not in self._dirty:
                self._settings.setdefault(name, value)
        epoch = reader.epoch()
        if epoch is not None:
            self._epoch = max(self._epoch or 0, epoch)
        self._set_aside(reader.bad)
        self._loaded = True

    def _add_before(self, found: TenantRecord) -> bool:
        """A run that memory has of its registration alone had this usage until then."""
        open_still = self._open.get(found.job_id)
        if open_still is not None and open_still.run == found.run:
            self._before[found.run] = found.usage
            self._set_usage(found.job_id, open_still.usage)
        elif found.run in self._ended:
            ended = self._ended[found.run]
            self._ended[found.run] = replace(ended, usage=together(found.usage, ended.usage))
        else:
            return False
        return True

    def _set_aside(self, rows: list[Bad]) -> None:
        for bad in rows:
            if bad.table != "remembered":
                log.error("a row of %s makes no sense and is set aside: %s", bad.table, bad.why)
        remembered = [bad for bad in rows if bad.table == "remembered"]
        if remembered:
            log.warning(
                "what policies have stored of %d jobs makes no sense (%s) and is set aside: "
                "they start without it",
                *(len(remembered), remembered[0].why),
            )
        # Before anything else is written, while their numbers are still theirs.
        self._dirty = dict.fromkeys((tables.put_aside, (bad,)) for bad in rows) | self._dirty

    def _put_open(self, db: sqlite3.Connection, job_id: int) -> None:
        tables.put_open(db, job_id, self._open.get(job_id))

    def _put_usage(self, db: sqlite3.Connection, job_id: int) -> None:
        record = self._open.get(job_id)
        tables.put_usage(db, job_id, record.usage if record else {})

    def _put_remembered(self, db: sqlite3.Connection, job_id: int) -> None:
        record = self._open.get(job_id)
        tables.put_remembered(db, job_id, record.remembered if record else None)

    def _put_parked(self, db: sqlite3.Connection, job_id: int) -> None:
        record = self._open.get(job_id)
        tables.put_parked(db, job_id, record.parked_by if record else None)

    def _put_ended(self, db: sqlite3.Connection, run: Run) -> None:
        if run in self._ended:
            tables.put_ended(db, self._ended[run])

    def _put_stepd(self, db: sqlite3.Connection, pid: int) -> None:
        tables.put_stepd(db, pid, self._stepds.get(pid))

    def _put_setting(self, db: sqlite3.Connection, device: str, key: str) -> None:
        tables.put_setting(db, device, key, self._settings.get((device, key)))

    def _put_epoch(self, db: sqlite3.Connection) -> None:
        tables.put_epoch(db, self.epoch())

    def _drop_old(self, db: sqlite3.Connection) -> None:
        tables.drop_settled(db, time.time() - KEEP_SETTLED_S, KEEP_SETTLED)


def _own(record: TenantRecord) -> TenantRecord:
    """The record with counters of its own."""
    return replace(record, usage={uuid: replace(used) for uuid, used in record.usage.items()})


def _is_full(fault: Exception) -> bool:
    code = getattr(fault, "sqlite_errorcode", 0) or 0
    return code & 0xFF == sqlite3.SQLITE_FULL or getattr(fault, "errno", 0) == errno.ENOSPC


def _listed(jobs: list[int]) -> str:
    """Their numbers, or some of them where they are many."""
    words = ", ".join(str(job_id) for job_id in jobs[:JOBS_NAMED])
    return words if len(jobs) <= JOBS_NAMED else f"{words} and others"
