"""Scenarios from seeds, of a few kinds. What a seed gives stays as it is, as tests name some;
mixes.py has more."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.core.scenario import Job, Poke, Scenario

POKES = ("stop", "freeze", "thaw", "die", "close", "size", "fixed", "hang", "finish", "widen")
SETTINGS = ("lock", "quantum", "drain", "resume", "channels", "room")


@dataclass(frozen=True)
class Mix:
    """What kind of jobs a scenario has: shares of those that swap and that heed no lock; the
    most that stays of each; how many drain slowly; the lengths of work that are chosen from."""

    swapping: float
    off: float
    fixed: tuple[int, ...]
    slow: float
    gangs: float
    busy: tuple[int, ...]
    pause: tuple[int, ...]


def a_mix(r: random.Random) -> Mix:
    return Mix(
        swapping=r.choice((0.0, 0.3, 0.9)),
        off=r.choice((0.0, 0.0, 0.1, 0.5)),
        fixed=r.choice(((0,), (0, 0, 5, 30), (0, 30, 50, 70))),
        slow=r.choice((0.0, 0.1, 0.8)),
        gangs=r.choice((0.1, 0.5, 0.9)),
        busy=r.choice(((20, 200), (1000, 5000), (5000, 600_000), (20, 1000, 600_000))),
        pause=r.choice(((5, 50), (50, 500, 5000), (1000, 20_000))),
    )


def a_job(r: random.Random, devices: int, mix: Mix) -> Job:
    wide = r.random() < mix.gangs
    slow = r.random() < mix.slow
    return Job(
        gang=tuple(sorted(r.sample(range(devices), r.randint(1, devices) if wide else 1))),
        lock="off" if r.random() < mix.off else r.choice(("on", "auto")),
        quantum=r.choice((100, 1000, 1000, 3000, 10_000, 30_000)),
        swaps=r.random() < mix.swapping,
        size=r.choice((0, 1, 5, 20, 30, 45, 60, 90)),
        fixed=r.choice(mix.fixed),
        opens=r.choice((0, 0, 0, r.randint(0, 60_000))),
        busy=r.choice(mix.busy),
        pause=r.choice(mix.pause),
        drain=r.randint(8000, 19_000) if slow else r.choice((0, 1, 20, 1000)),
        delay=r.choice((0, 0, 0, 1, 5, 50)),
        speed=r.choice((2, 10, 50)),
    )


def a_poke(r: random.Random, jobs: int, devices: int, seconds: int) -> Poke:
    at = r.randint(0, seconds * 1000)
    kind = r.random()
    if kind < 0.03:
        return Poke(at, "restart", 0)
    if kind < 0.75:
        return Poke(at, r.choice(POKES), r.randrange(jobs), r.randint(0, 100))
    return Poke(at, r.choice(SETTINGS), r.randrange(devices), r.randint(0, 100))


def random_scenario(seed: int) -> Scenario:
    r = random.Random(seed)
    devices = r.choice((1, 1, 2, 2, 3, 8))
    count = r.randint(35, 60) if r.random() < 0.1 else r.randint(2, 12)
    mix, seconds = a_mix(r), r.choice((100, 1000, 4000))
    jobs = tuple(a_job(r, devices, mix) for _ in range(count))
    early = r.choice((60, seconds))  # so that what follows from it is seen for long
    pokes = [a_poke(r, count, devices, early) for _ in range(r.choice((0, 3, 10, 40)))]
    return Scenario(devices, seconds, jobs, tuple(sorted(pokes, key=lambda p: p.at)))
