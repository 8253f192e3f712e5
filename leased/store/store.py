"""What must survive the daemon: tenants and their usage, what the site has set, in SQLite.

Everything is kept in memory first and then written, so a disk that is full or
read-only stops nothing: what could not be written stays in memory, `fault` says
so, and it is written as soon as possible. A crash of the daemon loses nothing that
was written. After a loss of power the file is sound (it has a write-ahead log),
and it has the ends of tenants and the settings, which are synced to the disk at once,
but beside the leases' work (syncer.py). The
last usage of tenants that still ran may be missing: what the kernel had not
written back yet, which is some 30 s.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from leased.base import job_names
from leased.base.errors import Refused
from leased.core.policy import PolicyState
from leased.processes.identity import ProcessId
from leased.store import database, lost_jobs, read_only, writing
from leased.store.contents import Contents
from leased.store.disk import Disk
from leased.store.reading import Reader
from leased.store.records import Run, TenantRecord, own
from leased.store.registrations import Registrations
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage

KEEP_SETTLED_S = 30 * 86400
KEEP_SETTLED = 100_000  # runs
KEEP_STEPS = 200_000  # of those
DROP_OLD_S = 3600.0
FOUND_MOST = 64  # runs, of an array that has had more on this node
LATEST = f"ORDER BY opened DESC LIMIT {FOUND_MOST}"


class Store:
    """The database at `path`, made if missing. Writing never raises; see `fault`.

    registrations: files of open tenants, in case the database is lost; None: they are not kept.
    Refused: the file is a newer release's, or its directory is open to others.
    """

    def __init__(self, path: Path, registrations: Registrations | None = None):
        self.path = path
        self.registrations = registrations
        self._kept = Contents()
        self._disk = Disk(path)
        self._begin()
        self._dropped_at = 0.0
        if self._kept.epoch is None:
            # Epochs must be above those of a database that was lost, as us of the clock are.
            self._kept.epoch = int(time.time() * 1e6)
        if registrations is not None:
            lost_jobs.compare(self._kept, registrations, self.runs, path)

    def _begin(self) -> None:
        try:
            self._kept.take_in(self._disk.open())
        except (sqlite3.Error, OSError) as fault:
            self._failed(fault)
            self._disk.close()
            with contextlib.suppress(sqlite3.Error), read_only.connect_to_read(self.path) as db:
                self._kept.take_in(db)

    @property
    def fault(self) -> str | None:
        """Why the disk lacks what memory has, a sentence; None: it lacks nothing."""
        return self._disk.fault

    def close(self) -> None:
        if self._kept.changes:
            self.flush()
        self._disk.close()

    # -- what the daemon tells --------------------------------------------------

    def open_tenant(self, record: TenantRecord) -> None:
        """A run of a job begins. If an earlier run is still open, it has ended unnoticed."""
        before = self._kept.open.get(record.job_id)
        if before is not None:
            self._kept.end(before)
        ended = self._kept.runs(record.job_id)
        opened = max([time.time(), *(run.opened + 1e-3 for run in ended)])
        self._kept.begin(replace(record, opened=opened, closed=None, settled=None))
        self.flush()
        self._register(record.job_id)

    def place(self, job_id: int, totals: Mapping[str, int]) -> None:
        """The tenant has these devices from now on. totals: bytes that it sees of them."""
        record = self._kept.open[job_id]
        self._kept.change(replace(record, gang=tuple(totals), totals=dict(totals)))
        self.flush()
        self._register(job_id)

    def resolve(self, job_id: int, options: str, totals: Mapping[str, int]) -> None:
        """Store what the tenant was given, where an earlier release did not store all of it."""
        record = self._kept.open[job_id]
        if (record.options, record.totals) != (options, totals):
            self._kept.change(replace(record, options=options, totals=dict(totals)))
            self._register(job_id)

    def add_stepd(self, process: ProcessId, job_id: int) -> None:
        """A slurmstepd has registered. Where Slurm uses no cgroups, it identifies its tasks."""
        self._kept.set_stepd(process, job_id)
        self.flush()
        self._register(job_id)

    def forget_stepd(self, pid: int) -> None:
        """A slurmstepd has ended. The disk learns that with the next change."""
        self._kept.forget_stepd(pid)

    def save(
        self,
        usage: Mapping[int, Mapping[str, Usage]],
        epoch: int,
        remembered: Mapping[int, PolicyState] | None = None,
        parked: Mapping[int, str | None] | None = None,
        steps: Mapping[int, Mapping[str, StepUsage]] | None = None,
        *,
        later: bool = False,
    ) -> None:
        """The usage so far of many tenants and of their steps, what their policies remember of
        them and who parked them (None: nobody), in one transaction, and the highest epoch. later:
        the next flush() writes it."""
        self._kept.set_epoch(epoch)
        for job_id, by_device in usage.items():
            self._kept.set_usage(job_id, by_device)
        for job_id, state in (remembered or {}).items():
            self._kept.set_remembered(job_id, state if state.state else None)
        for job_id, who in (parked or {}).items():
            self._kept.set_parked(job_id, who)
        for job_id, by_name in (steps or {}).items():
            self._kept.set_steps(job_id, by_name)
        if not later:
            self.flush()

    def close_tenant(
        self, job_id: int, usage: Mapping[str, Usage], steps: Mapping[str, StepUsage] | None = None
    ) -> None:
        """The tenant is over; its usage waits for Slurm's accounting. steps: None: as stored."""
        self._kept.set_usage(job_id, usage)
        self._kept.set_steps(job_id, steps or {})
        record = self._kept.open.pop(job_id, None)
        if record is not None:
            self._kept.end(record)
        for pid in [pid for pid, (_, job) in self._kept.stepds.items() if job == job_id]:
            self.forget_stepd(pid)
        self.flush()
        if self.registrations is not None:
            self.registrations.remove(job_id)

    def settle(self, runs: Iterable[Run]) -> None:
        """These runs need not wait for Slurm's accounting any more. Old runs are forgotten."""
        for run in runs:
            self._kept.settle(run)
        now = time.monotonic()
        if now - self._dropped_at > DROP_OLD_S or not self._dropped_at:
            self._dropped_at = now
            self._kept.changes.mark(_drop_old)
        self.flush()

    def put_setting(self, device: str, key: str, value: str | None) -> None:
        """The site sets this for a device (its UUID) or for all ("*"); None: nothing any more.

        The next flush() writes it, so that several settings are written together.
        """
        self._kept.set_setting(device, key, value)

    def _register(self, job_id: int) -> None:
        if self.registrations is not None:
            lost_jobs.register(self._kept, self.registrations, job_id)

    # -- what it asks -----------------------------------------------------------

    def stepds(self) -> dict[int, tuple[ProcessId, int]]:
        """The slurmstepds that registered and their jobs, by pid. They may have ended since."""
        return dict(self._kept.stepds)

    def settings(self) -> dict[tuple[str, str], str]:
        """What the site has set, by device (UUID or "*") and key."""
        return dict(self._kept.settings)

    def epoch(self) -> int:
        """The highest epoch of a lease at the last save."""
        return self._kept.epoch or 0

    def open_tenants(self) -> list[TenantRecord]:
        """Tenants that are not over. The caller may go on counting their usage."""
        return [own(record) for record in self._kept.open.values()]

    def opened(self, job_id: int) -> float | None:
        """When an open tenant's run began, in seconds since 1970; None: unknown."""
        record = self._kept.open.get(job_id)
        return record.opened if record else None

    def unsettled(self) -> list[TenantRecord]:
        """Ended runs that are not in Slurm's accounting yet, oldest first."""
        waiting = (record for record in self._kept.ended.values() if record.settled is None)
        return sorted(waiting, key=lambda record: record.closed or 0)

    def runs(self, job_id: int) -> list[TenantRecord]:
        """The ended runs of a job, oldest first; those on the disk too where it can be read."""
        with contextlib.suppress(sqlite3.Error):
            return self._runs(job_id)
        return self._kept.runs(job_id)

    def find(self, job: int | str) -> list[TenantRecord]:
        """The last run of each job that this means (leased/base/job_names.py), of now or of the
        last month; of many, the last ones. Refused: the disk cannot be read."""
        kept = [*self._kept.ended.values(), *self._kept.open.values()]
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
        found = {record.run: record for record in self._kept.runs(job_id)}
        if self._disk.db is not None:
            for record in Reader(self._disk.db).ended("job_id = ?", job_id):
                found.setdefault(record.run, record)
        return [found[run] for run in sorted(found)]

    def flush(self) -> None:
        """Write what the disk lacks, in one transaction. A fault is kept in `fault`."""
        if not self._kept.changes and self.fault is None:
            return
        try:
            if spoilt := self._disk.spoilt():
                self._let_go(spoilt)
            self._kept.take_in(self._disk.open())
            self._kept.changes.write(self._disk.open())
            self._disk.written(durable=self._kept.changes.durable)
        except (sqlite3.Error, OSError, Refused) as fault:
            self._failed(fault)
            return
        self._kept.written()

    def _let_go(self, why: object) -> None:
        """Set the file aside, and write all to a new one. OSError: it cannot be renamed."""
        self._disk.let_go(why, in_memory=self._kept.loaded)
        self._kept.mark_all()

    def _failed(self, fault: Exception) -> None:
        """Log the fault, and set a damaged file aside."""
        self._disk.failed(fault)
        if database.is_read_only(fault):
            self._disk.close()  # one that was opened so stays so
        if self._disk.db is not None and database.is_damage(fault):
            with contextlib.suppress(OSError, sqlite3.Error):
                self._let_go(fault)


def _that_mean(job: int | str) -> tuple[str, tuple[object, ...]]:
    """The condition of SQL that job_names.means() is, and its values; an index serves each part."""
    if isinstance(job, int):
        return "job_id = ?", (job,)
    if not job.isdecimal():
        return "name = ?", (job,)
    parts = f"{job}_", f"{job}`", f"{job}+", f"{job},"  # with what follows _ and + in ASCII
    words = "(job_id = ? OR (name > ? AND name < ?) OR (name > ? AND name < ?))"
    return words, (int(job), *parts)


def _drop_old(db: sqlite3.Connection) -> None:
    writing.drop_settled(db, time.time() - KEEP_SETTLED_S, KEEP_SETTLED)
    writing.drop_steps(db, KEEP_STEPS)
