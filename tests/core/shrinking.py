"""A scenario is made as small as can be while it still breaks the same rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.core.scenario import ABOUT_JOBS, Job, Scenario


def simpler(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios with less in them, the boldest cuts first."""
    for size in (8, 4, 2, 1):
        for start in range(0, len(scenario.pokes), size):
            pokes = scenario.pokes[:start] + scenario.pokes[start + size :]
            yield replace(scenario, pokes=pokes)
        for start in range(0, len(scenario.jobs), size):
            gone = range(start, min(start + size, len(scenario.jobs)))
            yield without_jobs(scenario, set(gone))
    for n, job in enumerate(scenario.jobs):
        plain = Job(job.gang)
        for name in ("delay", "opens", "lock", "fixed", "swaps", "drain", "speed", "pause", "busy"):
            if getattr(job, name) != getattr(plain, name):
                yield with_job(scenario, n, replace(job, **{name: getattr(plain, name)}))
        if len(job.gang) > 1:
            yield with_job(scenario, n, replace(job, gang=job.gang[:-1]))
    if scenario.devices > 1 + max((d for job in scenario.jobs for d in job.gang), default=0):
        pokes = tuple(
            p for p in scenario.pokes if p.what in ABOUT_JOBS or p.who < scenario.devices - 1
        )
        yield replace(scenario, devices=scenario.devices - 1, pokes=pokes)


def with_job(scenario: Scenario, n: int, job: Job) -> Scenario:
    jobs = list(scenario.jobs)
    jobs[n] = job
    return replace(scenario, jobs=tuple(jobs))


def without_jobs(scenario: Scenario, gone: set[int]) -> Scenario:
    """Without these and what is done to them; the others keep what is done to them."""
    left = [n for n in range(len(scenario.jobs)) if n not in gone]
    place = {old: new for new, old in enumerate(left)}
    pokes = [
        replace(poke, who=place[poke.who]) if poke.what in ABOUT_JOBS else poke
        for poke in scenario.pokes
        if poke.what not in ABOUT_JOBS or poke.who in place
    ]
    return replace(scenario, jobs=tuple(scenario.jobs[n] for n in left), pokes=tuple(pokes))


def shrink(scenario: Scenario, fails: Callable[[Scenario], bool], tries: int = 400) -> Scenario:
    """A scenario that still fails and of which nothing simple can be taken away."""
    going = True
    while going:
        going = False
        for candidate in simpler(scenario):
            tries -= 1
            if tries < 0:
                return scenario
            if fails(candidate):
                scenario, going = candidate, True
                break
    return scenario
