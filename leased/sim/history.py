"""What a record says of jobs and GPUs over time: who waited, who held, what memory there was.

The record is replayed, and after each event the tenants that it names are looked at. Times are
ns of the record's clock, sizes are bytes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from leased.core.actions import Contend, Forfeit, Grant
from leased.core.arbiter import Arbiter
from leased.core.events import Event, Frozen, Opened, Parked, SpeedMeasured, WorkMeasured
from leased.core.state import Tenant
from leased.memory.residency import Residency
from leased.record import place
from leased.record.codec import Damaged
from leased.sim import replay
from leased.sim.replay import Step
from leased.usage.usage import Usage

# What the simulator does not know; a prediction from a record with these is to be doubted.
NOT_SIMULATED = {Parked: "a job was parked", Frozen: "a job was stopped or suspended"}


@dataclass
class Hold:
    """A lease. since: its grant. ready: when all its memory was there, None: not yet. until: its
    end. revoked: when it was told to end, None: it was not. idle_ns: after how much idleness it
    was to yield, as it was told last; None: nobody waited. contended: since when it was to.
    moved_ns: how long managed memory came for it."""

    since: int
    ready: int | None
    until: int
    revoked: int | None = None
    idle_ns: int | None = None
    contended: int = 0
    moved_ns: int = 0

    def told(self, idle_ns: int | None, now: int) -> None:
        """After how much idleness it is to yield from now on."""
        if self.idle_ns is None:
            self.contended = now
        self.idle_ns = idle_ns

    @property
    def begun(self) -> int:
        """When it began to work."""
        ready = self.until if self.ready is None else self.ready
        return min(self.until, max(ready, self.since + self.moved_ns))


@dataclass
class Wait:
    since: int
    until: int


@dataclass
class Run:
    """A job from its registration to its end (or the record's; over: it has ended). memory: what
    it had of each device from then on. usage: what it had of them in all, by device."""

    job: int
    tenant: Tenant
    opened: int
    closed: int
    over: bool = False
    waits: list[Wait] = field(default_factory=list)
    holds: list[Hold] = field(default_factory=list)
    memory: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    _waits: bool = False
    _epoch: int | None = None  # of the lease that it has

    @property
    def name(self) -> str:
        """The job as squeue showed it."""
        return self.tenant.job or str(self.job)

    @property
    def gang(self) -> tuple[str, ...]:
        return self.tenant.gang

    def asked(self, hold: Hold) -> int:
        """When the job began to wait for that lease."""
        return next((wait.since for wait in self.waits if wait.until == hold.since), hold.since)

    def look(self, now: int) -> None:
        """Take over the tenant's present state."""
        lease = self.tenant.lease
        epoch = None if lease is None else lease.epoch
        if self._epoch is not None and epoch != self._epoch:
            self.holds[-1].until = now
        if self._waits and not self.tenant.waiting:
            self.waits[-1].until = now
        if self.tenant.waiting and not self._waits:
            self.waits.append(Wait(now, now))
        if lease is not None and epoch != self._epoch:
            self.holds.append(Hold(now, None, now))
        if lease is not None:
            hold = self.holds[-1]
            if hold.ready is None and not lease.restoring:
                hold.ready = now
            if lease.revoked and hold.revoked is None:
                hold.revoked = now
        self._waits, self._epoch = self.tenant.waiting, epoch

    def end(self, now: int) -> None:
        """The record ends here, or the job does."""
        self.closed = now
        if self._waits:
            self.waits[-1].until = now
        if self._epoch is not None:
            self.holds[-1].until = now


@dataclass(frozen=True)
class Work:
    """In how many percent of that time work was under way on the device, as NVML said."""

    since: int
    until: int
    busy_percent: int


@dataclass
class History:
    """written: seconds since 1970 when the record began. rooms: what jobs could have of a device
    together, from then on. resident: what of their memory was there (as modelled where it is
    managed). work: of a device, in order. not_simulated: what happened that the simulator does not
    know, and how often."""

    written: float
    begin: int
    end: int
    arbiter: Arbiter
    runs: list[Run] = field(default_factory=list)
    rooms: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    resident: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    work: dict[str, list[Work]] = field(default_factory=dict)
    not_simulated: Counter[str] = field(default_factory=Counter)

    @property
    def devices(self) -> list[str]:
        """The devices in the daemon's order."""
        return list(self.arbiter.devices)

    @property
    def policies(self) -> list[str]:
        """The names of the devices' policies, each once."""
        return sorted(set(self.arbiter.rules.policies.chosen.values()))

    def tenant(self, job: int) -> Tenant | None:
        """The job as the arbiter has it now; None: it has ended."""
        return self.arbiter.tenants.get(job)

    def residency(self, uuid: str) -> Residency:
        """The memory of all jobs on a device now."""
        return self.arbiter.devices[uuid].residency


def changed(series: list[tuple[int, int]], now: int, value: int) -> None:
    """Note a value where it is another one than before."""
    if not series or series[-1][1] != value:
        series.append((now, value))


class Reader:
    """Makes a history of the steps of a replay."""

    def __init__(self, written: float, arbiter: Arbiter):
        now = arbiter.now
        self.history = History(written, now, now, arbiter)
        self.open: dict[int, Run] = {}
        for job in arbiter.tenants:
            self._look(job, now)
        self._look_at_devices(now)

    def take(self, step: Step) -> None:
        """Take one event and its actions."""
        event, now = step.entry.event, max(self.history.end, step.entry.now)
        self.history.end = now
        self._note(event)
        jobs = [getattr(event, "tenant", None)] + [a.tenant for a in step.outcome.actions]
        for job in dict.fromkeys(jobs):
            if job is not None:
                self._look(job, now)
        for action in step.outcome.actions:
            run = self.open.get(action.tenant)
            if run is not None and run.holds and isinstance(action, (Grant, Contend)):
                run.holds[-1].told(action.idle_ns, now)
            if isinstance(action, Forfeit):
                self.history.not_simulated["a job lost its GPU as it did not release it"] += 1
        self._look_at_devices(now)

    def finish(self) -> History:
        for run in self.open.values():
            run.usage = self.history.arbiter.usage(run.job, self.history.end)
            run.end(self.history.end)
        return self.history

    def _note(self, event: Event) -> None:
        history = self.history
        if isinstance(event, WorkMeasured) and event.busy_percent is not None:
            found = Work(history.end - event.ns, history.end, event.busy_percent)
            history.work.setdefault(event.device, []).append(found)
        if isinstance(event, SpeedMeasured):
            run = self.open.get(event.tenant)
            if run is not None and run.holds and not run.tenant.swaps:
                run.holds[-1].moved_ns += event.ns
        if type(event) in NOT_SIMULATED:
            history.not_simulated[NOT_SIMULATED[type(event)]] += 1
        if isinstance(event, Opened):
            self._close(event.tenant)
            if event.ordered:
                history.not_simulated["a job was on other nodes too"] += 1

    def _look(self, job: int, now: int) -> None:
        tenant = self.history.tenant(job)
        if tenant is None:
            self._close(job)
            return
        run = self.open.get(job)
        if run is None:
            run = self.open[job] = Run(job, tenant, now, now)
            self.history.runs.append(run)
        run.look(now)
        for uuid in run.gang:
            share = self.history.residency(uuid).shares.get(job)
            size = share.bytes + share.fixed if share else 0
            changed(run.memory.setdefault(uuid, []), now, size)

    def _close(self, job: int) -> None:
        run = self.open.pop(job, None)
        if run is not None:
            run.end(self.history.end)
            run.over = True
            run.usage = run.tenant.usage

    def _look_at_devices(self, now: int) -> None:
        for uuid in self.history.devices:
            memory = self.history.residency(uuid)
            changed(self.history.rooms.setdefault(uuid, []), now, memory.room)
            there = memory.resident + memory.fixed + memory.stuck
            changed(self.history.resident.setdefault(uuid, []), now, there)


def of(record: Iterable[bytes], notes: list[str]) -> History:
    """The history of a record. Damaged: the file is not a record. notes: remarks are added here."""
    return _read(record, notes).finish()


def _read(record: Iterable[bytes], notes: list[str]) -> Reader:
    header, arbiter, steps = replay.begin(record, notes)
    reader = Reader(header.written, arbiter)
    for step in steps:
        reader.take(step)
    return reader


def load(path: Path, notes: list[str]) -> History:
    """What a record says together with the older file beside it, FILE.1, which it goes on from.
    Damaged: it is no record. OSError: it cannot be read. notes: what else is to be said."""
    with contextlib.ExitStack() as files:
        newer, older = files.enter_context(path.open("rb")), None
        with contextlib.suppress(OSError):  # there is none, or it is not this one's
            older = files.enter_context(place.before(path).open("rb"))
        found = _both(older, newer, place.before(path), notes) if older else None
        return found or of(newer, notes)


def _both(older: Iterable[bytes], newer: BinaryIO, name: Path, notes: list[str]) -> History | None:
    """None: they do not belong together, which is noted, and nothing of the newer one is read."""
    said: list[str] = []
    try:
        reader = _read(older, said)
    except Damaged as fault:
        notes.append(f"{name} is left out: {fault}")
        return None
    more = replay.go_on(newer, reader.history.arbiter, said)
    if more is None:
        notes.append(f"{name} is left out: the record does not begin where it ends")
        newer.seek(0)
        return None
    for step in more:
        reader.take(step)
    notes += said
    return reader.finish()
