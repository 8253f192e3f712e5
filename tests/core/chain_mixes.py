"""Scenarios in which some jobs are parts of chains."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.core.mixes import any_scenario
from tests.core.scenario import Job, Scenario


def chained_scenario(seed: int) -> Scenario:
    """As any_scenario draws it; and most jobs that swap are parts of a few chains."""
    scenario, r = any_scenario(seed), random.Random(f"chains of {seed}")
    names = ("a", "b", "c")[: r.randint(1, 3)]
    swaps, lock = r.random() < 0.8, r.choice(("on", "auto", None))

    def chained(job: Job) -> Job:
        if r.random() < 0.2:
            return job
        gang = job.gang[:1] if r.random() < 0.9 else job.gang
        name = r.choice(names)
        return replace(job, swaps=swaps or job.swaps, lock=lock or job.lock, gang=gang, chain=name)

    return replace(scenario, jobs=tuple(chained(job) for job in scenario.jobs))
