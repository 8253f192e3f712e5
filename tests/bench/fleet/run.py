"""A day of a fleet, minute by minute.

Assumed: a task begins and ends within a step's granularity (it gets a GPU at the beginning of a
step, and ends when its work is done); starting and moving take no time. An offline task whose
memory does not fit beside that of the online tasks is stopped and its memory away, until it fits.
One that has had less than LEAST of its speed for PATIENCE_S is evicted: it loses the work
since its last checkpoint (one each CHECKPOINT_S), and comes first again; the GPU takes no offline
task for as long, and twice as long each further time within FORGETS_S. No GPU, node or task fails.
Work goes on after the day, with the same online day again, until all is done, or HORIZON days.
Tasks that are not done then count as if they ended there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np

from leased.matching.profile import Profile
from tests.bench.fleet.speeds import Speeds, seen
from tests.bench.fleet.systems import BestFit, Exclusive, TimeSharing
from tests.bench.fleet.tasks import MEMORY, Day
from tests.bench.fleet.trace import STEP_S, Days, Floats, Ints
from tests.support.together import zip_strict

HORIZON = 3  # days
PATIENCE_S, FORGETS_S = 600, 7200
CHECKPOINT_S = 600
LEAST = 0.1  # of its speed alone
SLOWEST, BINS = 3.0, 2000  # of the histogram of slowdowns


def _summed(at: Ints, weights: Floats, minimum: int) -> Floats:
    """The sum of the weights at each number from 0 to minimum."""
    found: Floats = np.asarray(np.bincount(at, weights, minimum), dtype=np.float64)
    return found


@dataclass
class Running:
    """Offline tasks that have a GPU, as columns. left: s of work. worse: s for which it has hardly
    run. unsaved: s of work since its last checkpoint."""

    who: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    gpu: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    program: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    memory: Floats = field(default_factory=lambda: np.zeros(0))
    left: Floats = field(default_factory=lambda: np.zeros(0))
    worse: Floats = field(default_factory=lambda: np.zeros(0))
    unsaved: Floats = field(default_factory=lambda: np.zeros(0))

    def add(self, rows: Sequence[tuple[int, int, int, float, float]]) -> None:
        """rows: who, gpu, program, memory, left."""
        if rows:
            columns = list(zip_strict(*rows))
            for name, values in zip_strict(("who", "gpu", "program", "memory", "left"), columns):
                before = getattr(self, name)
                setattr(self, name, np.concatenate([before, np.array(values, before.dtype)]))
            for name in ("worse", "unsaved"):
                setattr(self, name, np.concatenate([getattr(self, name), np.zeros(len(rows))]))

    def keep(self, those: Any) -> None:
        """those: of each, whether it stays."""
        for name in self.__dataclass_fields__:
            setattr(self, name, getattr(self, name)[those])


@dataclass
class Outcome:
    """Of the day's offline tasks: comes, work, ends and first (when it first had a GPU), s; NaN:
    not until the end. until: when the simulation ends at the latest, s. busy: of each step of the
    day, the part of all GPUs' time in which they worked. waiting: tasks. slowed: how much of online
    tasks' work was slowed how much, as counts of BINS up to SLOWEST. done, lost, left: s of offline
    work. most_memory: bytes on a GPU."""

    comes: Floats
    work: Floats
    ends: Floats
    first: Floats
    until: float
    busy: list[float] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    slowed: Floats = field(default_factory=lambda: np.zeros(BINS))
    starts: int = 0
    evicted: int = 0
    done: float = 0.0
    lost: float = 0.0
    left: float = 0.0
    most_memory: float = 0.0

    @property
    def jct(self) -> Floats:
        """From submission to end, s."""
        found: Floats = np.where(np.isnan(self.ends), self.until, self.ends) - self.comes
        return found

    @property
    def waited(self) -> Floats:
        """From submission to the first start, s."""
        found: Floats = np.where(np.isnan(self.first), self.until, self.first) - self.comes
        return found

    def slowdown(self, part: float) -> float:
        """Of so much of the online tasks' work it was at most this."""
        total = np.cumsum(self.slowed)
        at = int(np.searchsorted(total, part * total[-1])) if total[-1] else 0
        return 1 + (at + 0.5) * (SLOWEST - 1) / BINS if at else 1.0


class Simulation:
    def __init__(self, day: Day, days: Days, speeds: Speeds, system: Exclusive, gpus: int):
        self.day, self.days, self.speeds, self.system, self.gpus = day, days, speeds, system, gpus
        self.shares = isinstance(system, TimeSharing)
        self.matched = isinstance(system, BestFit)
        self.steps = days.duty.shape[1]  # of a day
        self.running = Running()
        tasks = day.offline
        system.know(tasks)
        self.outcome = Outcome(
            comes=np.array([task.comes for task in tasks]),
            work=np.array([task.work for task in tasks]),
            ends=np.full(len(tasks), np.nan),
            first=np.full(len(tasks), np.nan),
            until=float(HORIZON * self.steps * STEP_S),
        )
        self.waiting: list[int] = []
        self.next = 0  # task that comes
        self.left = {n: task.work for n, task in enumerate(tasks)}
        self.back: dict[int, tuple[float, float]] = {}  # of a shut GPU: until when, for how long
        self._place_online()

    def _place_online(self) -> None:
        online = self.day.online
        peaks = [int(self.days.memory[task.pod].max()) for task in online]
        where = self.system.place_online(online, peaks)
        pairs = [(n, gpu) for n, gpus in enumerate(where) for gpu in gpus]
        self.pod = np.array([online[n].pod for n, _ in pairs], dtype=np.int64)
        self.at = np.array([gpu for _, gpu in pairs], dtype=np.int64)
        self.program: Ints = np.full(self.gpus, -1, dtype=np.int64)
        tasks: dict[int, list[int]] = {}
        for n, gpu in pairs:
            tasks.setdefault(gpu, []).append(n)
        for gpu, there in tasks.items():
            first = online[there[0]]
            self.program[gpu] = self.speeds.number(first.program)
            if isinstance(self.system, BestFit):
                self.system.online[gpu] = self._profile(there)

    def _profile(self, there: Sequence[int]) -> Profile:
        """Of the online tasks of a GPU together: as the program of the first one."""
        pods = [self.day.online[n].pod for n in there]
        loads = np.minimum(1.0, self.days.duty[pods].sum(0))
        memory = float(self.days.memory[pods].sum(0).max())
        return seen(self.speeds.profiles[self.day.online[there[0]].program], loads, memory)

    def run(self) -> Outcome:
        for step in count():
            today = step < self.steps
            late = step >= HORIZON * self.steps
            if not today and (late or not self._is_work_left()):
                break
            self.step(step, today)
        self.outcome.left = float(self.running.left.sum()) + sum(self.left[n] for n in self.waiting)
        return self.outcome

    def _is_work_left(self) -> bool:
        comes = self.next < len(self.day.offline)
        return comes or bool(self.waiting) or len(self.running.who) > 0

    def step(self, step: int, today: bool) -> None:
        now = float(step * STEP_S)
        pods = step % self.steps
        work = _summed(self.at, self.days.duty[self.pod, pods], self.gpus)
        load = np.minimum(1.0, work)
        memory = _summed(self.at, self.days.memory[self.pod, pods], self.gpus)
        self._start(now)
        speed, slower = self._speeds(load, memory)
        if today:
            self._count(load, memory, speed, slower)
        self._work(now, speed)
        self._evict(now)

    def _start(self, now: float) -> None:
        tasks = self.day.offline
        while self.next < len(tasks) and tasks[self.next].comes <= now:
            self.waiting.append(self.next)
            self.next += 1
        for gpu in [gpu for gpu, (until, _) in self.back.items() if until <= now]:
            self.system.shut.discard(gpu)  # type: ignore[attr-defined]
            if self.back[gpu][0] + FORGETS_S <= now:
                del self.back[gpu]
        started = list(self.system.start(self.waiting, tasks))
        gone = {who for who, _ in started}
        self.waiting = [who for who in self.waiting if who not in gone]
        self.running.add(
            [
                (n, gpu, self.speeds.number(tasks[n].program), tasks[n].memory, self.left[n])
                for n, gpu in started
            ]
        )
        for who in gone:
            if np.isnan(self.outcome.first[who]):
                self.outcome.first[who] = now
        self.outcome.starts += len(started)

    def _speeds(self, load: Floats, memory: Floats) -> tuple[Floats, Floats]:
        """Of each running task its speed, and of each GPU how slow its online tasks are."""
        running, slower = self.running, np.ones(self.gpus)
        if not self.shares:
            return np.ones(len(running.who)), slower
        if not self.matched:
            fits = self._fits(memory)
            wants = self.speeds.busy[running.program] * fits
            wanted = _summed(running.gpu, wants, self.gpus)
            speed, slower = self.speeds.by_turns(load, wanted)
            return speed[running.gpu] * fits, slower
        there = running.gpu
        speed, slow = self.speeds.beside(self.program[there], load[there], running.program)
        fits = self._fits(memory)
        slower[there] = np.where(fits, slow, 1.0)
        speed = speed * fits
        running.worse = np.where(speed >= LEAST, 0.0, running.worse + STEP_S)
        return speed, slower

    def _fits(self, memory: Floats) -> Any:
        """Of each running task, whether its memory fits on its GPU, and so whether it runs: those
        that came there first do."""
        running = self.running
        order = np.lexsort((running.who, running.gpu))
        gpu = running.gpu[order]
        total = np.cumsum(running.memory[order])
        begins = np.searchsorted(gpu, gpu, side="left")
        before = np.where(begins > 0, total[begins - 1], 0.0) if len(gpu) else total
        fits: np.ndarray[Any, np.dtype[np.bool_]] = np.empty(len(gpu), dtype=bool)
        fits[order] = memory[gpu] + total - before <= MEMORY
        return fits

    def _count(self, load: Floats, memory: Floats, speed: Floats, slower: Floats) -> None:
        running, found = self.running, self.outcome
        works = _summed(running.gpu, speed * self.speeds.busy[running.program], self.gpus)
        found.busy.append(float(np.minimum(1.0, load + works).mean()))
        found.waiting.append(len(self.waiting))
        there = load > 0
        at = ((slower[there] - 1) / (SLOWEST - 1) * BINS).astype(int).clip(0, BINS - 1)
        found.slowed = found.slowed + _summed(at, load[there], BINS)
        here = _summed(running.gpu, running.memory * (speed > 0), self.gpus)
        most = (memory + here)[here > 0] if self.shares else here
        found.most_memory = max(found.most_memory, float(most.max(initial=0)))

    def _work(self, now: float, speed: Floats) -> None:
        running, found = self.running, self.outcome
        does = np.minimum(running.left, speed * STEP_S)
        found.done += float(does.sum())
        running.unsaved = (running.unsaved + does) % CHECKPOINT_S
        over = running.left - does <= 1e-9
        for row in np.flatnonzero(over):
            who = int(running.who[row])
            found.ends[who] = now + running.left[row] / speed[row]
            self.system.end(int(running.gpu[row]), self.day.offline[who])
        running.left = running.left - does
        running.keep(~over)

    def _evict(self, now: float) -> None:
        running, found = self.running, self.outcome
        out = running.worse >= PATIENCE_S
        for row in np.flatnonzero(out):
            who, gpu = int(running.who[row]), int(running.gpu[row])
            self.left[who] = float(running.left[row] + running.unsaved[row])
            found.lost += float(running.unsaved[row])
            found.evicted += 1
            self.system.end(gpu, self.day.offline[who])
            self.waiting.insert(0, who)
            before = self.back.get(gpu, (0.0, PATIENCE_S / 2))[1]
            self.back[gpu] = now + 2 * before, 2 * before
            self.system.shut.add(gpu)  # type: ignore[attr-defined]
        running.keep(~out)
