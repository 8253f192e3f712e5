"""Divides the usage of each job among the job's steps.

A lease is a job's. Which of its steps hold it, wait for it and have memory is known by the
processes, whose steps Slurm's cgroups tell. By that the job's usage is divided among its steps
whenever it is saved. step_division.py says what is divided by what, and docs/accounting.md how
exact that is.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from leased.leasing import step_division
from leased.leasing.step_clock import Seen, StepClock
from leased.leasing.step_division import GRANTS, LEASE, OVERRUNS, RESIDENT, WANTED
from leased.leasing.tenant import Client
from leased.usage.gauge import Gauge, WorkPart, divided, weights_beside
from leased.usage.lease_clock import LeaseClock
from leased.usage.step_usage import OTHERS, STEPS_MOST, UNKNOWN, StepUsage
from leased.usage.usage import Usage, together

ONE_STEP_NS = 60_000_000_000  # between divisions of the usage of a job with one step


@dataclass
class JobSteps:
    """The steps of one job, by name. swaps: its memory is swapped, so that what is resident is
    known of each process.

    clock, gauge: of the job's lease. work: by device and step, what NVML says since the usage was
    divided. last: by device and step, the weights that were used last, for what comes when nobody
    holds or has anything any more. recent, active: steps that had processes at the last division,
    and those among which it divided; settled: what all others have, by device. divided_at: when
    that was.
    """

    swaps: bool
    clock: LeaseClock
    steps: dict[str, StepClock] = field(default_factory=dict)
    of: dict[Client, Seen] = field(default_factory=dict)
    gauge: Gauge = field(default_factory=Gauge)
    work: dict[str, dict[int, int]] = field(default_factory=dict)
    last: dict[str, dict[str, dict[int, int]]] = field(default_factory=dict)
    recent: set[int] = field(default_factory=set)
    active: frozenset[int] = frozenset()
    settled: dict[str, Usage] = field(default_factory=dict)
    divided_at: int | None = None

    def came(self, client: Client, name: str, now: int, today: float) -> None:
        if client not in self.of:
            self.of[client] = self._step(name, now, today).came(client, now)

    def gone(self, client: Client, now: int, today: float) -> None:
        seen = self.of.pop(client, None)
        if seen is None:
            return
        step = seen.step
        held = step.holding
        step.gone(client, now)
        step.until = max(step.until, today)
        if held and not step.holding:
            self.note_holder(step, now)

    def _step(self, name: str, now: int, today: float) -> StepClock:
        """The step of that name, or OTHERS if the job has too many steps to tell them apart."""
        if name not in self.steps and len(self.steps) >= STEPS_MOST:
            name = OTHERS
        if name not in self.steps:
            self.steps[name] = StepClock(len(self.steps), now, today, today)
        return self.steps[name]

    def note_holder(self, step: StepClock, now: int) -> None:
        """The step has just begun or ended to hold the lease."""
        clock, begins = self.clock, step.holding > 0
        clock.count(now, 1 if begins else -1, 0)
        change = self.gauge.begin if begins else self.gauge.end
        change(step.number, (clock.each, clock.shared, now))

    def divide(self, usage: Mapping[str, Usage], now: int, today: float, *, final: bool) -> None:
        """Divide what the job's usage has more than its steps'. final: this is the last time."""
        self.divided_at = now
        steps = self._active_steps(final)
        for step in steps:
            step.advance(now)
            step.count_own(usage, self.swaps)
            step.until = max(step.until, today) if step.clients else step.until
        held = self.gauge.take(self.clock.reading(now))
        for uuid, whole in usage.items():
            parts = [WorkPart(*part) for part in self.work.get(uuid, {}).items()]
            shifts = divided(held, weights_beside(held, parts, {}))
            lease = {n: had.lease_ns + shifts.get(n, 0) for n, had in held.items()}
            theirs = step_division.less(whole, self.settled.get(uuid, Usage()))
            self._divide(uuid, theirs, steps, lease, final)
        for step in steps:
            step.begin_again()
        self.work.clear()

    def _active_steps(self, final: bool) -> list[StepClock]:
        """The steps among which the usage is divided: those that have processes, or had some at
        one of the last two divisions, since NVML answers late. The usage of the others is final."""
        late, self.recent = self.recent, {s.number for s in self.steps.values() if s.is_recent}
        active = frozenset(range(len(self.steps)) if final else self.recent | late)
        steps = list(self.steps.values())
        if active != self.active:
            self.active = active
            others = [step.usage for step in steps if step.number not in active]
            self.settled = functools.reduce(together, others, {})
        return [step for step in steps if step.number in active]

    def _divide(
        self,
        uuid: str,
        whole: Usage,
        steps: Sequence[StepClock],
        lease: Mapping[int, int],
        final: bool,
    ) -> None:
        usages = [step.of(uuid) for step in steps]
        resident_before = [usage.resident_kib_ms for usage in usages]
        for by, weights in self._weights(uuid, steps, lease, final).items():
            step_division.divide(whole, usages, by, weights)
        if not self.swaps:  # then resident memory is modelled, for the whole job only
            for step, before in zip(steps, resident_before):
                step.note_resident(uuid, before)

    def _weights(
        self, uuid: str, steps: Sequence[StepClock], lease: Mapping[int, int], final: bool
    ) -> dict[str, list[int]]:
        """By each quantity by which figures are divided: a weight for each step."""
        memory = [step.memory.get(uuid) for step in steps]
        wanted = [has.time.wanted if has else 0 for has in memory]
        resident = [has.time.resident if has else 0 for has in memory]
        found = {
            LEASE: [lease.get(step.number, 0) for step in steps],
            WANTED: wanted,
            RESIDENT: resident if self.swaps else wanted,
            GRANTS: [step.grants for step in steps],
            OVERRUNS: [step.overruns for step in steps],
        }
        last = self.last.setdefault(uuid, {})
        for by, weights in found.items():
            if any(weights):
                last[by] = {s.number: w for s, w in zip(steps, weights) if w}
            else:
                before = last.get(by, {})
                found[by] = [before.get(step.number, 0) for step in steps]
                if final and not any(found[by]):
                    found[by] = [1] * len(steps)
        return found

    def snapshots(self) -> dict[str, StepUsage]:
        """The usage of each step, as of the last division."""
        return {
            name: step.snapshot(step.number in self.active) for name, step in self.steps.items()
        }


class StepLedger:
    """The steps of all open jobs. clock: monotonic ns. today: seconds since 1970.

    name_of: the step of a process, by its pid.
    """

    def __init__(self, clock: Callable[[], int], today: Callable[[], float] = time.time) -> None:
        self.clock = clock
        self.today = today
        self.name_of: Callable[[int], str] = lambda _: UNKNOWN
        self.jobs: dict[int, JobSteps] = {}

    def open(self, job_id: int, swaps: bool, before: Mapping[str, StepUsage]) -> None:
        """A job begins, or goes on after a restart of the daemon with its stored usage."""
        now = self.clock()
        job = self.jobs[job_id] = JobSteps(swaps, LeaseClock(now))
        for name, had in before.items():
            usage = {uuid: used.copy() for uuid, used in had.usage.items()}
            job.steps[name] = StepClock(len(job.steps), now, had.since, had.until, usage)

    def came(self, job_id: int, client: Client) -> None:
        """A process of the job has connected."""
        job = self.jobs.get(job_id)
        if job is not None:
            job.came(client, self.name_of(client.pid), self.clock(), self.today())
            self.see(job_id, (client,))

    def see(self, job_id: int, clients: Iterable[Client]) -> None:
        """These processes of the job may wait for, hold or have something else than before. Those
        that have not come, or are gone, do not count."""
        job = self.jobs.get(job_id)
        if job is not None:
            of, now = job.of, self.clock()
            for client in clients:
                seen = of.get(client)
                if seen is not None and seen.step.see(client, seen, now):
                    job.note_holder(seen.step, now)

    def gone(self, job_id: int, client: Client) -> None:
        """The connection of a process has ended."""
        if job_id in self.jobs:
            self.jobs[job_id].gone(client, self.clock(), self.today())

    def granted(self, job_id: int) -> None:
        """The job is about to get a lease: it counts for the step that has waited longest."""
        job = self.jobs.get(job_id)
        waiting = [step for step in job.steps.values() if step.waiting] if job else []
        if len(waiting) > 1:
            waiting.sort(key=lambda step: step.longest_wait or 0)
        if waiting:
            waiting[0].grants += 1

    def overran(self, job_id: int) -> None:
        """The job has not released in time: that counts for the first step that still holds."""
        job = self.jobs.get(job_id)
        for step in job.steps.values() if job else ():
            if step.holding:
                step.overruns += 1
                return

    def worked(self, job_id: int, uuid: str, work: Mapping[int, int]) -> None:
        """What NVML says of the work on a device since the last look, by pid."""
        job = self.jobs.get(job_id)
        if job is None or len(job.steps) < 2:
            return
        parts = job.work.setdefault(uuid, {})
        numbers = {client.pid: seen.step.number for client, seen in job.of.items()}
        for pid, number in numbers.items():
            parts[number] = parts.get(number, 0) + work.get(pid, 0)

    def is_due(self, job_id: int) -> bool:
        """Whether the job's usage is to be divided again, to be stored. Where there is one step
        nothing is lost by doing so seldom: all that has not been divided is that step's."""
        job = self.jobs.get(job_id)
        if job is None or len(job.steps) != 1 or job.divided_at is None:
            return True
        return self.clock() - job.divided_at >= ONE_STEP_NS

    def divided(
        self, job_id: int, usage: Mapping[str, Usage], *, final: bool = False
    ) -> dict[str, StepUsage]:
        """The usage of each step. usage: that of the whole job up to now."""
        job = self.jobs.get(job_id)
        if job is None:
            return {}
        job.divide(usage, self.clock(), self.today(), final=final)
        return job.snapshots()

    def close(self, job_id: int, usage: Mapping[str, Usage]) -> dict[str, StepUsage]:
        """The job is over. Returns the usage of each step."""
        found = self.divided(job_id, usage, final=True)
        self.jobs.pop(job_id, None)
        return found
