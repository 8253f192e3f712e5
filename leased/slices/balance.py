"""Slices and duties by which jobs have the parts of a device that they are to have.

Slices are in proportion to the parts. But a slice is a most: a job that waits for each of its
kernels gives the rest of its slices away. So what jobs have is measured, and those that have more
than their part are cut, ever more while that lasts: at first by their slices and, once these are
short, by duty. A job with a duty of its part of the time is not cut further, and the one that needs
it least is not cut at all: so cuts do not grow for the sake of a job that wants no more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from leased.slices.job import LEAST, TURN_US

GAIN, STEP = 0.4, 1.0  # of a look; the most that one look counts
# A slice is cut to this at most, in us and of what it is in proportion: shorter ones cost more
# switches than duty does.
SHORTEST_US, SHORTEST = 4000, 0.8
SPAN = 2.0  # of cuts, from the shortest slices to a duty that is the job's part


@dataclass
class Balance:
    """cuts: by job, the logarithm of what it is cut by."""

    cuts: dict[int, float] = field(default_factory=dict)

    def measured(self, parts: Mapping[int, float], used: Mapping[int, float]) -> None:
        """parts: what the jobs that want more are to have. used: what they have had."""
        cuts = {job: self.cuts.get(job, 0.0) for job in parts}
        had, due = sum(used[job] for job in parts), sum(parts.values())
        if had > LEAST and due > 0:
            over = {job: _over(used[job] / had, part / due) for job, part in parts.items()}
            cuts = {job: cut + GAIN * over[job] for job, cut in cuts.items()}
        least, most = min(cuts.values(), default=0.0), _most(parts)
        self.cuts = {job: min(cut - least, most[job]) for job, cut in cuts.items()}

    def push(self, jobs: Collection[int], parts: Mapping[int, float]) -> None:
        """Cut these as far as that goes. parts: as in measured()."""
        most = _most(parts)
        self.cuts |= {job: most[job] for job in jobs}

    def go_back(self, before: Mapping[int, float], way: float) -> None:
        """From a push to the cuts before it, but for a part of the way."""
        self.cuts = {
            job: before.get(job, 0.0) + way * (cut - before.get(job, 0.0))
            for job, cut in self.cuts.items()
        }

    def slices(self, parts: Mapping[int, float]) -> dict[int, float]:
        """In us, of jobs that are to have these parts."""
        return {
            job: max(_shortest(us), us * math.exp(-self.cuts.get(job, 0.0)))
            for job, us in _nominal(parts).items()
        }

    def duty(self, job: int, parts: Mapping[int, float]) -> float:
        """The part of the time in which it may run. parts: as in measured()."""
        us = _nominal(parts)[job]
        beyond = max(0.0, self.cuts.get(job, 0.0) - math.log(us / _shortest(us)))
        return 1 - (1 - parts[job]) * min(1.0, beyond / SPAN)


def _nominal(parts: Mapping[int, float]) -> dict[int, float]:
    """Slices in proportion, in us."""
    due = max(LEAST, sum(parts.values()))
    return {job: TURN_US * len(parts) * max(part, LEAST) / due for job, part in parts.items()}


def _shortest(us: float) -> float:
    """A slice that is cut no further."""
    return min(SHORTEST_US, SHORTEST * us)


def _most(parts: Mapping[int, float]) -> dict[int, float]:
    """The largest cuts."""
    return {job: math.log(us / _shortest(us)) + SPAN for job, us in _nominal(parts).items()}


def _over(had: float, due: float) -> float:
    """How much more a job has had than it was due, in units in which a cut changes as much of a
    large part as of a small one. What is below NVML's resolution is nothing."""
    if abs(had - due) <= LEAST:
        return 0.0
    return max(-STEP, min(STEP, (had - due) / math.sqrt(max(due * (1 - due), LEAST))))
