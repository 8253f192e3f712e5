"""What the store keeps, in memory. Each change of it waits in `changes` to be written."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace

from leased.core.policy import PolicyState
from leased.processes.identity import ProcessId
from leased.store import writing
from leased.store.changes import Changes
from leased.store.reading import Reader, tell_bad
from leased.store.records import Run, TenantRecord
from leased.usage.step_usage import StepUsage, added, with_most
from leased.usage.usage import Usage, together

STEPS_MOST = 50_000  # of runs that wait for Slurm's accounting, all together


class Contents:
    """open: the tenants that are open, by job. ended: runs that Slurm's accounting does not have
    yet. stepds: slurmstepds and their jobs, by pid. settings: by device and key. epoch: None:
    unknown. loaded: all that the disk had has been read.
    """

    def __init__(self) -> None:
        self.changes = Changes()
        self.open: dict[int, TenantRecord] = {}
        self.ended: dict[Run, TenantRecord] = {}
        # What the disk had of open runs that memory had before it could read the disk.
        self._before: dict[Run, TenantRecord] = {}
        self.stepds: dict[int, tuple[ProcessId, int]] = {}
        self.settings: dict[tuple[str, str], str] = {}
        self.epoch: int | None = None
        self.loaded = False

    # -- open tenants -----------------------------------------------------------

    def begin(self, record: TenantRecord) -> None:
        """A run of a job begins, of which the disk has nothing."""
        self.open[record.job_id] = record
        self._mark_open(record.job_id)

    def change(self, record: TenantRecord) -> None:
        """An open tenant is given other things than before."""
        self.open[record.job_id] = record
        self.changes.mark(self._put_open, "tenants", record.job_id)

    def set_usage(self, job_id: int, usage: Mapping[str, Usage]) -> None:
        record = self.open.get(job_id)
        if record is None:
            return
        before = self._before.get(record.run)
        usage = together(before.usage, usage) if before else usage
        # A copy: what the arbiter goes on counting is not what the disk has.
        if record.usage != usage:
            record.usage = {uuid: used.copy() for uuid, used in usage.items()}
            self.changes.mark(self._put_open, "usage", job_id)

    def set_steps(self, job_id: int, steps: Mapping[str, StepUsage]) -> None:
        """What steps of an open tenant have had. Those that are not named stay as they are."""
        record = self.open.get(job_id)
        if record is not None:
            before = self._before.get(record.run)
            steps = added([before.steps, steps]) if before else steps
            changed = {name: s for name, s in steps.items() if record.steps.get(name) != s}
            record.steps = {**record.steps, **changed}
            self._mark_steps(record.run, changed)

    def set_remembered(self, job_id: int, remembered: PolicyState | None) -> None:
        record = self.open.get(job_id)
        if record is not None and record.remembered != remembered:
            record.remembered = remembered
            self.changes.mark(self._put_open, "remembered", job_id)

    def set_parked(self, job_id: int, who: str | None) -> None:
        record = self.open.get(job_id)
        if record is not None and record.parked_by != who:
            record.parked_by = who
            self.changes.mark(self._put_open, "parked", job_id)

    def end(self, record: TenantRecord) -> None:
        """A run ends, which is to be synced to the disk."""
        closed = max(time.time(), record.opened) if record.closed is None else record.closed
        room = STEPS_MOST - sum(len(run.steps) for run in self.ended.values())
        record = replace(record, steps=with_most(record.steps, max(0, room - 1)))
        self.ended[record.run] = replace(record, closed=closed, remembered=None, parked_by=None)
        self._before.pop(record.run, None)
        self._mark_open(record.job_id)
        self._mark_ended(record.run)
        self.changes.durable = True

    # -- ended runs ---------------------------------------------------------------

    def settle(self, run: Run) -> None:
        """The run need not wait for Slurm's accounting any more."""
        if run in self.ended:
            self.ended[run] = replace(self.ended[run], settled=time.time())
            self.changes.mark(self._put_ended, run)

    def runs(self, job_id: int) -> list[TenantRecord]:
        """The ended runs of a job, oldest first."""
        return [self.ended[run] for run in sorted(self.ended) if run[0] == job_id]

    # -- the rest -------------------------------------------------------------------

    def set_stepd(self, process: ProcessId, job_id: int) -> None:
        self.stepds[process.pid] = (process, job_id)
        self.changes.mark(self._put_stepd, process.pid)

    def keep_stepd(self, process: ProcessId, job_id: int) -> None:
        """Keep one that an earlier daemon knew, unless another process has its number now."""
        self.stepds.setdefault(process.pid, (process, job_id))
        self.changes.mark(self._put_stepd, process.pid)

    def forget_stepd(self, pid: int) -> None:
        if self.stepds.pop(pid, None) is not None:
            self.changes.mark(self._put_stepd, pid)

    def set_setting(self, device: str, key: str, value: str | None) -> None:
        if value is None:
            self.settings.pop((device, key), None)
        else:
            self.settings[device, key] = value
        self.changes.mark(self._put_setting, device, key)
        self.changes.durable = True

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.changes.mark(self._put_epoch)

    # -- memory and disk ------------------------------------------------------------

    def written(self) -> None:
        """The disk has all changes, so ended runs that are settled can leave memory."""
        self.changes.written()
        for run in [run for run, record in self.ended.items() if record.settled is not None]:
            del self.ended[run]

    def mark_all(self) -> None:
        """Nothing of what memory has is on the disk, so all of it is a change."""
        before = [change for change in self.changes.take() if change[0] is not writing.put_aside]
        for job_id in self.open:
            self._mark_open(job_id)
        for run in self.ended:
            self._mark_ended(run)
        for pid in self.stepds:
            self.changes.mark(self._put_stepd, pid)
        for device, key in self.settings:
            self.changes.mark(self._put_setting, device, key)
        self.changes.mark(self._put_epoch)
        for put, what in before:
            self.changes.mark(put, *what)

    def take_in(self, db: sqlite3.Connection) -> None:
        """Read from the disk, once, what memory does not have. sqlite3.Error: nothing is taken."""
        if self.loaded:
            return
        reader = Reader(db)
        tenants, ended = reader.tenants(), reader.ended("written IS NULL")
        stepds, settings, epoch = reader.stepds(), reader.settings(), reader.epoch()
        for record in tenants:
            if self._add_before(record):
                continue
            if self.open.setdefault(record.job_id, record).run != record.run:
                self.end(record)
        for record in ended:
            self.ended.setdefault(record.run, record)
        for process, job_id in stepds:
            self.stepds.setdefault(process.pid, (process, job_id))
        for name, value in settings.items():
            if (self._put_setting, name) not in self.changes:
                self.settings.setdefault(name, value)
        if epoch is not None:
            self.epoch = max(self.epoch or 0, epoch)
        tell_bad(reader.bad)
        # Before anything else is written, while their numbers are still theirs.
        self.changes.mark_first((writing.put_aside, (bad,)) for bad in reader.bad)
        self.loaded = True

    def _add_before(self, found: TenantRecord) -> bool:
        """Add the usage that the disk has of a run which memory knows only by its registration."""
        open_still = self.open.get(found.job_id)
        if open_still is not None and open_still.run == found.run:
            self._before[found.run] = found
            self.set_usage(found.job_id, open_still.usage)
            self.set_steps(found.job_id, open_still.steps)
        elif found.run in self.ended:
            ended = self.ended[found.run]
            usage, steps = together(found.usage, ended.usage), added([found.steps, ended.steps])
            self.ended[found.run] = replace(ended, usage=usage, steps=steps)
        else:
            return False
        return True

    def _mark_open(self, job_id: int) -> None:
        """All that the disk should have of an open tenant is a change."""
        for table in writing.OF_OPEN:
            self.changes.mark(self._put_open, table, job_id)
        if job_id in self.open:
            self._mark_steps(self.open[job_id].run, self.open[job_id].steps)

    def _mark_ended(self, run: Run) -> None:
        self.changes.mark(self._put_ended, run)
        self._mark_steps(run, self.ended[run].steps)

    def _mark_steps(self, run: Run, names: Iterable[str]) -> None:
        for name in names:
            self.changes.mark(self._put_step, run, name)

    # -- what the disk should have, see writing.py ------------------------------------

    def _put_open(self, db: sqlite3.Connection, table: str, job_id: int) -> None:
        record = self.open.get(job_id)
        rows = writing.OF_OPEN[table](record) if record else []
        writing.put(db, table, {"job_id": job_id}, rows)

    def _put_ended(self, db: sqlite3.Connection, run: Run) -> None:
        if run in self.ended:
            key = {"job_id": run[0], "opened": run[1]}
            writing.put(db, "ended", key, [writing.ended_row(self.ended[run])])

    def _put_step(self, db: sqlite3.Connection, run: Run, name: str) -> None:
        is_open = self.open.get(run[0])
        record = is_open if is_open is not None and is_open.run == run else self.ended.get(run)
        if record is not None and name in record.steps:
            key = {"job_id": run[0], "opened": run[1], "step": name}
            writing.put(db, "steps", key, [writing.step_row(record.steps[name])])

    def _put_stepd(self, db: sqlite3.Connection, pid: int) -> None:
        known = self.stepds.get(pid)
        rows = [{"start": known[0].start, "job_id": known[1]}] if known else []
        writing.put(db, "stepds", {"pid": pid}, rows)

    def _put_setting(self, db: sqlite3.Connection, device: str, key: str) -> None:
        value = self.settings.get((device, key))
        rows = [] if value is None else [{"value": value}]
        writing.put(db, "settings", {"device": device, "key": key}, rows)

    def _put_epoch(self, db: sqlite3.Connection) -> None:
        writing.put(db, "epochs", {"one": 1}, [{"epoch": self.epoch or 0}])
