"""Scenarios in which some jobs are online, some offline, and others neither."""

from __future__ import annotations

import random
from dataclasses import replace

from leased.core.classes import OFFLINE, ONLINE
from tests.core.scenario import Job, Scenario
from tests.core.signalling import half_signalling


def with_class(job: Job, job_class: str) -> Job:
    """A job with a class has no share and heeds the lock, see leased/admin/job_class.py."""
    lock = "auto" if job.lock == "off" else job.lock
    return replace(job, job_class=job_class, request=0.0, limit=1.0, lock=lock)


def classed_scenario(seed: int) -> Scenario:
    """As half_signalling draws it; and some jobs, or all, have a class."""
    scenario = half_signalling(seed)
    r = random.Random(f"classes of {seed}")
    online, offline = r.choice(((0.2, 0.8), (0.5, 0.5), (0.2, 0.4), (1.0, 0.0)))

    def classed(job: Job) -> Job:
        drawn = r.random()
        if drawn < online:
            return with_class(job, ONLINE)
        return with_class(job, OFFLINE) if drawn < online + offline else job

    return replace(scenario, jobs=tuple(classed(job) for job in scenario.jobs))


def half_classed(seed: int) -> Scenario:
    """Classes are in every fifth scenario."""
    return half_signalling(seed) if seed % 5 else classed_scenario(seed)
