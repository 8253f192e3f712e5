"""The time slices of jobs of which none has a share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from leased.slices.habit import RECENT, Habit
from leased.slices.job import ALWAYS, LONG_US, SHORT_US, TURN_US, Choice, Seen, as_made
from leased.slices.pause import Pause

FULL, IDLE = 0.85, 0.75  # of the time: from where on a device is full, and until where it stays so
# Of its part of what all have: who always has work; who has not any more; who has not just now.
SATURATES, FALLS_SHORT, STOPS = 0.93, 0.9, 0.7
DOUBT_NS = 64_000_000_000  # the longest pause before something is tried again

NEW = "it is looked at what the jobs on the GPU use"
NOT_FULL = "the GPU is idle in between"
SILENT = "it has not used the GPU for a while"
BURSTS = "it uses less than its part, so its bursts are not interrupted"
SOME_BURST = "it uses less than its part, and so does another job"
GIVES_WAY = "it always has work, and gives way at once to jobs that work in bursts"
SEVERAL = "it always has work, and so has another job beside those that work in bursts"
ALL_WORK = "all jobs always have work, and longer slices cost fewer switches"
MIXED = "it gives its slices away, or has other work than a moment ago"


@dataclass
class WithoutShares:
    """Of one device. long: all have longer slices than the driver's."""

    full: bool = False
    long: bool = False
    pause: Pause = field(default_factory=Pause)  # before longer slices

    def choose(
        self, now: int, jobs: Mapping[int, Seen], used: Mapping[int, float],
        habits: Mapping[int, Habit],
    ) -> dict[int, Choice]:  # fmt: skip
        """used: what part of the time since the last look the device worked for each job."""
        self.full = sum(used.values()) >= (IDLE if self.full else FULL)
        active = [job for job in jobs if not habits[job].is_silent(now)]
        processes = sum(jobs[job].processes for job in active)
        own = {job: jobs[job].processes / max(1, processes) for job in active}
        for job in jobs:
            habits[job].look(now, used[job], own.get(job, 1 / len(jobs)), DOUBT_NS, self.full)
        self._lengthen(now, [habits[job] for job in active], [own[job] for job in active])
        self.long &= all(seen.controlled for seen in jobs.values())
        return self._chosen(now, jobs, habits)

    def _lengthen(self, now: int, habits: list[Habit], own: list[float]) -> None:
        """Decide whether all have longer slices: whether each has always had work lately."""
        known = len(habits) > 1 and all(len(habit.recent) == RECENT for habit in habits)
        lately = _least([fmean(habit.recent) for habit in habits], own) if known else 0.0
        last = _least([habit.recent[-1] for habit in habits], own) if known else 0.0
        if self.long and (lately < FALLS_SHORT or last < STOPS or not self.full):
            self.long = False
            self.pause.begin(now, DOUBT_NS)
        elif not self.long:
            self.long = self.full and lately >= SATURATES and self.pause.is_over(now)

    def _chosen(
        self, now: int, jobs: Mapping[int, Seen], habits: Mapping[int, Habit]
    ) -> dict[int, Choice]:
        silent = [job for job in jobs if habits[job].is_silent(now)]
        bursts = [job for job in jobs if habits[job].favored and job not in silent]
        work = [job for job in jobs if job not in silent and job not in bursts]
        if any(habit.is_new for habit in habits.values()):
            chosen = dict.fromkeys(jobs, as_made(NEW))
        elif not self.full:
            chosen = dict.fromkeys(jobs, as_made(NOT_FULL))
        elif self.long:
            chosen = dict.fromkeys(jobs, Choice(TURN_US, ALWAYS, ALL_WORK))
        elif not bursts or not work:
            chosen = dict.fromkeys(jobs, as_made(MIXED if not bursts else SOME_BURST))
        else:
            one = sum(jobs[job].processes for job in work) == 1
            chosen = dict.fromkeys(
                work, Choice(SHORT_US, ALWAYS, GIVES_WAY) if one else as_made(SEVERAL)
            )
            alone = len(bursts) == 1
            chosen |= dict.fromkeys(
                bursts, Choice(LONG_US, ALWAYS, BURSTS) if alone else as_made(SOME_BURST)
            )
        return chosen | dict.fromkeys(silent, as_made(SILENT))


def _least(used: list[float], own: list[float]) -> float:
    """What the job had that had least, of its part of what all had."""
    total = sum(used)
    return min(had / (part * total) for had, part in zip(used, own)) if total else 0.0
