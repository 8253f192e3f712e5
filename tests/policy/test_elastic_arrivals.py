"""Jobs with and without shares come and go at random: in every window of ten seconds in which the
same ones are there, each has what KubeShare's rules give it, to 0.02 of the device."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from tests.core.scenario import Job, Poke
from tests.policy.watched import WINDOW_S, Watched, greedy
from tests.support.long import long

SETTLE_S = 5  # what is owed from before is given, and forgotten
STAGE_S = SETTLE_S + WINDOW_S + 5
LIMITS = (0.05, 0.1, 0.25, 0.4, 0.6, 0.9, 1.0, 1.0, 1.0)


def fair_parts(jobs: Mapping[int, Job]) -> dict[int, float]:
    """Each has the same, but at least its request and at most its limit, until all is given."""

    def at(level: float) -> dict[int, float]:
        return {n: min(job.limit, max(job.request, level)) for n, job in jobs.items()}

    low, high = 0.0, 1.0
    if sum(at(1.0).values()) <= 1:
        return at(1.0)
    for _ in range(40):
        level = (low + high) / 2
        low, high = (level, high) if sum(at(level).values()) < 1 else (low, level)
    return at(low)


def drawn(r: random.Random) -> tuple[list[Job], list[Poke], list[set[int]]]:
    """Jobs, when they end, and who is there in each stage."""
    stages = [set(r.sample(range(6), r.randint(1, 4))) for _ in range(3)]
    jobs: list[Job] = []
    pokes: list[Poke] = []
    there = [set[int]() for _ in stages]
    for n in range(6):
        present = [k for k, stage in enumerate(stages) if n in stage]
        first, last = (present[0], present[-1]) if present else (0, 0)
        for k in range(first, last + 1):  # nobody comes back
            there[k].add(n)
        left = min(
            1 - sum(jobs[m].request for m in there[k] if m < n) for k in range(first, last + 1)
        )
        limit = r.choice(LIMITS)
        request = round(min(limit, r.choice((0.0, r.uniform(0, max(0.0, left))))), 2)
        if request > left:
            request = 0.0
        jobs.append(
            greedy(
                request,
                limit,
                quantum=r.choice((30, 100)),
                drain=r.choice((0, 1, 5)),
                opens=first * STAGE_S * 1000 + 100 * (first > 0),  # who goes has gone
            )
        )
        pokes.append(Poke((last + 1) * STAGE_S * 1000, "close", n))
    return jobs, sorted(pokes, key=lambda poke: poke.at), there


@pytest.mark.parametrize("seed", [0, 8, 11, 16, *long([*range(12, 16), *range(17, 40)])])
def test_each_has_its_part_whoever_comes_and_goes(seed: int) -> None:
    jobs, pokes, there = drawn(random.Random(seed))
    world = Watched(jobs, STAGE_S * len(there), pokes)
    for stage, present in enumerate(there):
        if not any(jobs[n].request > 0 or jobs[n].limit < 1 for n in present):
            continue  # the site's policy is in force
        wanted = fair_parts({n: jobs[n] for n in present})
        begin = stage * STAGE_S + SETTLE_S
        for first in range(begin, (stage + 1) * STAGE_S - WINDOW_S):
            got = world.got(first, first + WINDOW_S)
            got = {n: part for n, part in got.items() if n in present}
            told = (
                f"seed {seed}, stage {stage}, from second {first} on: {[jobs[n] for n in present]}"
            )
            assert got == pytest.approx(wanted, abs=0.02), told
