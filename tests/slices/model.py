"""A model of a GPU's own scheduler: groups that have work take turns by their time slices.

A group whose slice is over is preempted if another one has work; a group with nothing to run gives
the rest of its slice away. One that comes back after a while is next; else whose last turn is the
longest ago. One that has run alone for its slice is preempted by the next that has work. Times are
in us. What a preemption costs is of an H200, where two saturating jobs at 1, 2, 4 and 10 ms get
0.81, 0.90, 0.96 and 0.98 of what one does alone.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

MADE_US = 2048.0  # the driver's own slice of a compute group
SAVE_US = 100.0  # to take a group off in mid-kernel
RESTORE_US = 100.0  # to put it back on
OFF_US = 500.0  # to stop it in mid-kernel
PERIOD_US = 200_000.0  # of windows
SAMPLE_US = 2000.0  # how often a process looks whether it has work
AWAY_US = 1000.0  # without work: a group comes back at the head of the line
LOOK_US = 500_000.0
NEVER = math.inf


@dataclass
class Job:
    """One group. A job's work is a kernel after the other, of kernel_us each."""

    alike: ClassVar[bool] = True  # kernels, and nothing else depends on them: many are one step
    kernel_us: float
    pause_us: float = 0.0  # on the host after each kernel; 0: it has queued enough work
    slice_us: float = MADE_US
    duty: float = 1.0
    begins: float = 0.0
    left_us: float = 0.0  # of the kernel that runs
    ready_us: float = 0.0  # when it has work
    preempted: bool = False
    last_us: float = 0.0  # the end of its last turn
    ran_us: float = 0.0
    kernels: int = 0
    until_us: float = NEVER  # it ends then
    seen: int = 0  # samples in which it might run, and of those the ones in which it had work, or
    unfinished: int = 0
    wanted: int = 0  # had done some since the one before
    sampled: int = 0  # kernels until the last one

    def __post_init__(self) -> None:
        self.left_us = self.kernel_us

    def next_work(self, now: float) -> float:
        """When it has work that may run, from now on."""
        at = self.ready_us if self.ready_us > now else now
        if at >= self.until_us:
            return NEVER
        if self.duty >= 1:
            return at
        phase = self.phase(at)
        return at if phase < self.duty * PERIOD_US else at - phase + PERIOD_US

    def phase(self, now: float) -> float:
        """Since its window began."""
        return (now - self.begins * PERIOD_US) % PERIOD_US

    def sample(self, now: float) -> None:
        if self.duty >= 1 or self.phase(now) < self.duty * PERIOD_US:
            unfinished = self.ready_us <= now < self.until_us
            self.seen += 1
            self.unfinished += unfinished
            self.wanted += unfinished or self.kernels > self.sampled
        self.sampled = self.kernels

    def place(self) -> tuple[bool, float]:
        """Who had no work for a while is next, then whose last turn is the longest ago."""
        return self.ready_us < self.last_us + AWAY_US, self.last_us

    def may_run(self, now: float) -> float:
        """How long it may run from now on before it is stopped."""
        if self.duty >= 1:
            return NEVER
        return max(1e-6, self.duty * PERIOD_US - self.phase(now))

    def unbroken_us(self) -> float:
        """How long it has work without a pause, from when it has some."""
        return NEVER if self._steady() and not self.pause_us else self.left_us

    def _steady(self) -> bool:
        return self.alike and self.until_us == NEVER

    def run(self, now: float, time: float) -> None:
        """It runs for so long, of the time in which it has work without a pause."""
        self.ran_us += time
        self.left_us -= time
        if self.left_us <= 1e-6:
            more = int((1e-6 - self.left_us) // self.kernel_us)
            self.kernels += 1 + more
            rest = -self.left_us - more * self.kernel_us
            self.finished(now + time)
            self.left_us -= max(0.0, rest)

    def repeat(self, now: float, until: float) -> float:
        """Until when it has done whole kernels with their pauses, where nobody else has work."""
        cycle = self.kernel_us + self.pause_us
        times = int((until - now) // cycle)
        if self.duty < 1 or not self._steady() or self.left_us < self.kernel_us or times < 2:
            return now
        self.ran_us += times * self.kernel_us
        self.kernels += times
        self.ready_us = now + times * cycle
        self.last_us = self.ready_us - self.pause_us
        return self.ready_us

    def finished(self, now: float) -> None:
        self.left_us = self.kernel_us
        self.ready_us = now + self.pause_us


@dataclass
class Service(Job):
    """Requests of kernel_us come open loop, at random moments, every_us apart on average."""

    alike = False
    every_us: float = 20_000.0
    seed: int = 1
    asked: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.random = random.Random(self.seed)
        self.ready_us = self.next_request = self._gap()

    def _gap(self) -> float:
        """At least half of the mean: a queue of its own requests is not what is looked at."""
        return self.every_us * (0.5 + self.random.expovariate(2.0))

    def finished(self, now: float) -> None:
        self.left_us = self.kernel_us
        self.latencies.append(now - self.next_request)
        self.next_request += self._gap()
        self.ready_us = max(now, self.next_request)

    def percentile(self, part: float) -> float:
        found = sorted(self.latencies)
        return found[min(len(found) - 1, int(part * len(found)))]


class Window(NamedTuple):
    """Of a job, in the time between two looks: the parts in which its work ran, in which it had
    some of the time in which it might run, and in which it wanted to."""

    ran: float
    unfinished: float
    wanted: float


class Told(NamedTuple):
    """How a job's work runs. slice_us: 0: as made."""

    slice_us: float
    duty: float = 1.0
    begins: float = 0.0


Control = Callable[[float, Mapping[str, Window]], Mapping[str, Told]]


@dataclass
class Device:
    """The GPU with its jobs, by name."""

    jobs: dict[str, Job]
    now: float = 0.0
    current: str | None = None
    expires: float = 0.0  # the slice of the current one
    sample_at: float = 0.0

    def run(self, until: float) -> None:
        while self.now < until:
            if self.now >= self.sample_at:
                for job in self.jobs.values():
                    job.sample(self.now)
                self.sample_at = self.now + SAMPLE_US
            self._turn(min(until, self.sample_at))

    def _turn(self, until: float) -> None:
        """One turn: until the slice or the work is over, or another one preempts."""
        at = self._next_work()
        name = self._next(at)
        if name is None:
            self.now = min(until, *at.values())
            return
        if name != self.current:
            self._switch(name)
            at = self._next_work()
        job = self.jobs[name]
        # Alone it goes on after its slice, until another one has work.
        del at[name]
        others = min(at.values(), default=NEVER)
        if job.pause_us and (done := job.repeat(self.now, min(until, others))) > self.now:
            self.now = done
            return
        end = self.now + min(job.unbroken_us(), job.may_run(self.now))
        end = min(end, max(self.expires, others), until)
        job.run(self.now, end - self.now)
        self.now = job.last_us = end
        if job.duty < 1 and job.next_work(end) > end and job.left_us < job.kernel_us:
            self.now += OFF_US
            self.current, job.preempted = None, True

    def _next_work(self) -> dict[str, float]:
        now = self.now
        return {name: job.next_work(now) for name, job in self.jobs.items()}

    def _next(self, at: Mapping[str, float]) -> str | None:
        """Whose turn it is: the current one's while it has work and time, else the next one's."""
        now = self.now
        ready = [name for name, when in at.items() if when <= now]
        if self.current in ready and (now < self.expires or len(ready) == 1):
            return self.current
        if len(ready) < 2:
            return ready[0] if ready else None
        return min(ready, key=lambda name: self.jobs[name].place())

    def _switch(self, name: str) -> None:
        before, job = self.jobs.get(self.current or ""), self.jobs[name]
        if before is not None and before.left_us < before.kernel_us:
            before.preempted = True
            self.now += SAVE_US
        if job.preempted:
            job.preempted = False
            self.now += RESTORE_US
        self.current, self.expires = name, self.now + job.slice_us

    def play(self, seconds: float, control: Control | None = None) -> list[dict[str, float]]:
        """Run for so long. control: twice a second it is told the time and what was seen of each
        job, and says how each runs. The answer has the parts in which their work ran."""
        windows, end = [], self.now + seconds * 1e6
        while self.now < end:
            began, before = self.now, {name: job.ran_us for name, job in self.jobs.items()}
            for job in self.jobs.values():
                job.seen = job.unfinished = job.wanted = 0
            self.run(began + LOOK_US)
            took = self.now - began
            seen = {
                name: Window(
                    (job.ran_us - before[name]) / took,
                    job.unfinished / max(1, job.seen),
                    job.wanted / max(1, job.seen),
                )
                for name, job in self.jobs.items()
            }
            windows.append({name: window.ran for name, window in seen.items()})
            for name, told in (control(self.now, seen) if control else {}).items():
                job = self.jobs[name]
                job.slice_us, job.duty, job.begins = told.slice_us or MADE_US, *told[1:]
        return windows
