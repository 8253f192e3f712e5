"""Gives a job that waits a short turn before its time limit, so that its program can notice that.

Slurm says of each job when it ends, in the answer that is asked for each minute anyway
(ended_jobs.py). Its clock may not be ours, so what counts is how long the job may take since it
began here, if that is over sooner.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from leased.core.events import Signalled
from leased.leasing.leases import Leases
from leased.slurm.commands import JobState

LOOK_S = 1.0
BEFORE_S = 60.0  # the turn is so long before the end


class TimeLimits:
    """Call beat() every LOOK_S. Times in seconds since 1970."""

    def __init__(self, leases: Leases, clock: Callable[[], float] = time.time):
        self.leases = leases
        self.clock = clock
        self.ends: dict[int, float] = {}  # by job
        self.told: dict[int, float] = {}  # the end for which a job has had its turn

    def heard(self, said: Mapping[int, JobState], began: Mapping[int, float]) -> None:
        """What Slurm says of the jobs that are here, and when each of them began here."""
        self.ends = {}
        for job, state in said.items():
            if state.end is not None and state.start is not None:
                limit_s = state.end - state.start
                self.ends[job] = min(state.end, began.get(job, state.start) + limit_s)
        self.told = {job: end for job, end in self.told.items() if self.ends.get(job) == end}

    def beat(self) -> None:
        """Look once at the jobs whose limit is near."""
        latest = self.clock() + BEFORE_S
        for job, end in self.ends.items():
            state = self.leases.view.find_tenant(job) if end <= latest else None
            if state is not None and state.waiting and self.told.get(job) != end:
                self.told[job] = end
                self.leases.run(Signalled(job))
