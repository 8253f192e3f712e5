"""Scenarios in which some jobs have shares, beside others that have none. In most of them it is
measured whose the devices' work is, so that jobs with shares run side by side at times."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.core.lying import half_lying
from tests.core.measuring import measurements
from tests.core.scenario import Job, Scenario

REQUESTS = (0.0, 0.0, 0.05, 0.1, 0.3, 0.5, 0.9, 1.0)
LIMITS = (0.05, 0.2, 0.5, 0.6, 0.95, 1.0, 1.0)
SHORT = (30, 100, 100, 1000)  # ms; what a job with a share has as its quantum


def with_share(job: Job, r: random.Random) -> Job:
    limit = r.choice(LIMITS)
    return replace(
        job,
        request=min(r.choice(REQUESTS), limit),
        limit=limit,
        lock="auto" if job.lock == "off" else job.lock,
        quantum=r.choice(SHORT) if r.random() < 0.8 else job.quantum,
    )


def sharing_scenario(seed: int) -> Scenario:
    """As half_lying draws it; and some jobs, or all, have a share."""
    scenario = half_lying(seed)
    r = random.Random(f"shares of {seed}")
    part = r.choice((0.3, 0.7, 1.0))
    jobs = tuple(with_share(job, r) if r.random() < part else job for job in scenario.jobs)
    measured = measurements(r, scenario.devices, scenario.seconds)
    pokes = sorted((*scenario.pokes, *measured), key=lambda poke: poke.at)
    return replace(scenario, jobs=jobs, pokes=tuple(pokes))


def half_sharing(seed: int) -> Scenario:
    """Jobs with a share are in every third scenario."""
    return sharing_scenario(seed) if seed % 3 == 0 else half_lying(seed)
