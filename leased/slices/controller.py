"""Which time slices the jobs of a device have. It does no input and no output and reads no clock.

- A job that is alone has the driver's.
- A job that uses clearly less than its part though it may have more answers somebody (habit.py). It
  gets a long slice, so that its bursts are not interrupted, and a job that always has work gets a
  short one beside it. It gives the long slice away as soon as its burst is over.
- While all always have work, longer slices than the driver's cost fewer switches
  (without_shares.py).
- Jobs with shares have slices in proportion (by_shares.py).

What is not known, or was tried in vain, leaves the driver's own slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from leased.slices.by_shares import ByShares
from leased.slices.habit import Habit
from leased.slices.job import ALWAYS, Choice, Seen, as_made
from leased.slices.limits import Limits
from leased.slices.obedience import Obedience
from leased.slices.without_shares import WithoutShares

ALONE = "it is alone on the GPU"
NOT_CONTROLLED = "its time slices cannot be set"
DISOBEYS = "it uses more of the GPU than was set, so it sets its own slices, or none can be set"
SAME_SLICE, SAME_DUTY = 0.03, 5  # of the slice; per mille: less is no other choice
NOT_KNOWN = "it is not known what the jobs on the GPU use"


@dataclass
class Controller:
    """Of one device. habits: of the jobs that hold a lease. chosen: at the last look."""

    habits: dict[int, Habit] = field(default_factory=dict)
    shares: ByShares = field(default_factory=ByShares)
    without: WithoutShares = field(default_factory=WithoutShares)
    limits: Limits = field(default_factory=Limits)
    obedience: Obedience = field(default_factory=Obedience)
    chosen: dict[int, Choice] = field(default_factory=dict)

    def look(self, now: int, jobs: Mapping[int, Seen]) -> dict[int, Choice]:
        """What each job that holds a lease has from now on. now: ns."""
        there = {job: seen for job, seen in jobs.items() if seen.holds}
        self.habits = {job: self.habits.get(job, Habit()) for job in there}
        self.limits.measured(there)
        self.obedience.look(there, self.chosen)
        there |= {job: replace(there[job], controlled=False) for job in self.obedience.caught}
        self.chosen = {
            job: self._one(job, there[job], choice)
            for job, choice in self._choose(now, there).items()
        }
        return self.chosen

    def _one(self, job: int, seen: Seen, choice: Choice) -> Choice:
        if not seen.controlled:
            return as_made(DISOBEYS if job in self.obedience.caught else NOT_CONTROLLED)
        return _steady(self._limited(job, seen, choice), self.chosen.get(job))

    def _limited(self, job: int, seen: Seen, choice: Choice) -> Choice:
        duty = max(1, round(self.limits.of(job) * ALWAYS))
        if duty >= choice.duty:
            return choice
        why = f"{choice.why}; it may have {seen.limit:g} of the GPU at most"
        return Choice(choice.slice_us, duty, why)

    def _choose(self, now: int, there: Mapping[int, Seen]) -> dict[int, Choice]:
        used = {job: seen.part for job, seen in there.items() if seen.part is not None}
        if len(there) < 2 or len(used) < len(there):
            why = ALONE if len(there) < 2 else NOT_KNOWN
            self.shares, self.without.long = ByShares(), False
            return dict.fromkeys(there, as_made(why))
        if any(seen.has_share for seen in there.values()):
            self.without.long = False
            if self.obedience.doubts:
                return self.shares.same(there, used)
            return self.shares.choose(now, there, used, self.limits)
        self.shares = ByShares()
        return self.without.choose(now, there, used, self.habits)


def _steady(choice: Choice, before: Choice | None) -> Choice:
    """The choice, but what hardly differs from the one before stays as it was."""
    if before is None:
        return choice
    close = abs(choice.slice_us - before.slice_us) <= SAME_SLICE * before.slice_us
    us = before.slice_us if close and choice.slice_us else choice.slice_us
    near = abs(choice.duty - before.duty) <= SAME_DUTY and choice.duty not in (ALWAYS, 0)
    return Choice(us, before.duty if near else choice.duty, choice.why)
