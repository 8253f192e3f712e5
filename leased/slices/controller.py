"""Which time slices the jobs of a device have. It does no input and no output and reads no clock.

- A job that is alone has the driver's.
- A job that uses clearly less than its part though it may have more answers somebody (habit.py). It
  gets a long slice, so that its bursts are not interrupted, and a job that always has work gets a
  short one beside it. It gives the long slice away as soon as its burst is over.
- While all always have work, longer slices than the driver's cost fewer switches
  (without_shares.py).
- A job with a share, and who is beside it, has a part of the time for itself (by_shares.py).

What is not known, or was tried in vain, leaves the driver's own slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from leased.slices.by_shares import ByShares
from leased.slices.habit import Habit
from leased.slices.job import ALWAYS, Choice, Seen, as_made
from leased.slices.obedience import Obedience
from leased.slices.without_shares import WithoutShares

ALONE = "it is alone on the GPU"
NOT_CONTROLLED = "its time slices cannot be set"
DISOBEYS = "it uses more of the GPU than was set, so it sets its own slices, or none can be set"
SAME = 5  # per mille: a window that differs by less is no other one
NOT_KNOWN = "it is not known what the jobs on the GPU use"


@dataclass
class Controller:
    """Of one device. habits: of the jobs that hold a lease. chosen: at the last look."""

    habits: dict[int, Habit] = field(default_factory=dict)
    shares: ByShares = field(default_factory=ByShares)
    without: WithoutShares = field(default_factory=WithoutShares)
    obedience: Obedience = field(default_factory=Obedience)
    chosen: dict[int, Choice] = field(default_factory=dict)

    def look(self, now: int, jobs: Mapping[int, Seen]) -> dict[int, Choice]:
        """What each job that holds a lease has from now on. now: ns."""
        there = {job: seen for job, seen in jobs.items() if seen.holds}
        self.habits = {job: self.habits.get(job, Habit()) for job in there}
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
        return _steady(choice, self.chosen.get(job))

    def _choose(self, now: int, there: Mapping[int, Seen]) -> dict[int, Choice]:
        limited = any(seen.limit < 1 for seen in there.values())
        if limited or (len(there) > 1 and any(seen.has_share for seen in there.values())):
            self.without.long = False
            return self.shares.choose(now, there)
        self.shares = ByShares()
        used = {job: seen.part for job, seen in there.items() if seen.part is not None}
        if len(there) < 2 or len(used) < len(there):
            self.without.long = False
            return dict.fromkeys(there, as_made(ALONE if len(there) < 2 else NOT_KNOWN))
        return self.without.choose(now, there, used, self.habits)


def _steady(choice: Choice, before: Choice | None) -> Choice:
    """The choice, but a window that hardly differs from the one before stays as it was."""
    if before is None or ALWAYS in (choice.duty, before.duty):
        return choice
    moved = max(abs(choice.duty - before.duty), abs(choice.begins - before.begins))
    if moved > SAME:
        return choice
    return choice._replace(duty=before.duty, begins=before.begins)
