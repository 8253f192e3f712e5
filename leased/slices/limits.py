"""Duties by which jobs have no more of a device than their limits.

A job that has the device for itself has its limit as duty. Where others take some of its time, or
it works in bursts, it has more, up to all of the time: what it has is measured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.slices.job import LEAST, Seen

GAIN = 0.4  # of a look
FAR = 0.6  # of what a job has had: where its limit is less than that, it has it at once


@dataclass
class Limits:
    """duties: by job with a limit, the part of the time in which it may run. news: jobs whose duty
    has changed at the last look: NVML may not show yet what followed."""

    duties: dict[int, float] = field(default_factory=dict)
    news: set[int] = field(default_factory=set)

    def measured(self, jobs: Mapping[int, Seen]) -> None:
        """What jobs have had since the last look."""
        before, limited = self.duties, {job: seen for job, seen in jobs.items() if seen.limit < 1}
        self.duties = {job: self._next(job, seen) for job, seen in limited.items()}
        self.news = {job for job, duty in self.duties.items() if duty != before.get(job)}

    def _next(self, job: int, seen: Seen) -> float:
        duty = self.duties.get(job)
        if duty is None or seen.part is None:
            return seen.limit
        if job not in self.news and abs(seen.part - seen.limit) > LEAST:
            times = seen.limit / max(seen.part, LEAST)
            duty *= times if times < FAR else times**GAIN
        return max(seen.limit, min(1.0, duty))

    def of(self, job: int) -> float:
        return self.duties.get(job, 1.0)
