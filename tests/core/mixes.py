"""Scenarios from seeds in which everything is drawn, also what kind of jobs there are, and with
jobs that are parked and suspended, and reloads."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.core.scenario import OF_DEVICE, OF_JOB, Job, Poke, Scenario

SIZES = (0, 1, 5, 20, 30, 45, 60, 90)
QUANTA = (100, 1000, 3000, 10_000, 30_000)
DEPARTURES = ("park", "unpark", "suspend")


@dataclass(frozen=True)
class Mix:
    """What kind of jobs a scenario has: the shares of those that swap, of those that heed no
    lock, of the others those with lock:auto; the most that stays of each; how many drain slowly;
    how many are gangs, and of how many devices at most; what sizes, quanta and lengths of work
    are chosen from. reloads: the policies of devices change in the middle. departs: how many
    of the pokes at jobs park or suspend one."""

    swapping: float
    off: float
    auto: float
    fixed: tuple[int, ...]
    slow: float
    gangs: float
    widest: int
    sizes: tuple[int, ...]
    quanta: tuple[int, ...]
    busy: tuple[int, ...]
    pause: tuple[int, ...]
    reloads: bool
    departs: float


def some(r: random.Random, values: tuple[int, ...]) -> tuple[int, ...]:
    """One to all of them."""
    return tuple(r.sample(values, r.randint(1, len(values))))


def share(r: random.Random) -> float:
    """None, all or any part."""
    return r.choice((0.0, 1.0, r.random(), r.random()))


def a_mix(r: random.Random, devices: int) -> Mix:
    return Mix(
        swapping=share(r),
        off=r.choice((0.0, 0.0, 0.1, r.random())),
        auto=share(r),
        fixed=r.choice(((0,), (0, 0, 5, 30), (0, 30, 50, 70))),
        slow=r.choice((0.0, 0.1, 0.8)),
        gangs=share(r),
        widest=r.randint(1, devices),
        sizes=some(r, SIZES),
        quanta=some(r, QUANTA),
        busy=r.choice(((20, 200), (1000, 5000), (5000, 600_000), (20, 1000, 600_000))),
        pause=r.choice(((5, 50), (50, 500, 5000), (1000, 20_000))),
        reloads=r.random() < 0.3,
        departs=r.choice((0.0, 0.2, 0.6)),
    )


def a_job(r: random.Random, devices: int, mix: Mix) -> Job:
    width = r.randint(1, mix.widest) if r.random() < mix.gangs else 1
    slow = r.random() < mix.slow
    lock = "auto" if r.random() < mix.auto else "on"
    return Job(
        gang=tuple(sorted(r.sample(range(devices), width))),
        lock="off" if r.random() < mix.off else lock,
        quantum=r.choice(mix.quanta),
        swaps=r.random() < mix.swapping,
        size=r.choice(mix.sizes),
        fixed=r.choice(mix.fixed),
        opens=r.choice((0, 0, 0, r.randint(0, 60_000))),
        busy=r.choice(mix.busy),
        pause=r.choice(mix.pause),
        drain=r.randint(8000, 19_000) if slow else r.choice((0, 1, 20, 1000)),
        delay=r.choice((0, 0, 0, 1, 5, 50)),
        speed=r.choice((2, 10, 50)),
    )


def a_poke(r: random.Random, jobs: int, devices: int, seconds: int, mix: Mix) -> Poke:
    at = r.randint(0, seconds * 1000)
    kind = r.random()
    if kind < 0.03:
        return Poke(at, "restart", 0)
    if kind < 0.75:
        whats: tuple[str, ...] = DEPARTURES if r.random() < mix.departs else OF_JOB
        return Poke(at, r.choice(whats), r.randrange(jobs), r.randint(0, 100))
    settings = OF_DEVICE if mix.reloads else OF_DEVICE[:-1]
    return Poke(at, r.choice(settings), r.randrange(devices), r.randint(0, 100))


def any_scenario(seed: int) -> Scenario:
    r = random.Random(seed)
    devices = r.choice((1, 1, 2, 2, 3, r.randint(4, 8)))
    count = r.randint(35, 60) if r.random() < 0.1 else r.randint(2, 12)
    mix, seconds = a_mix(r, devices), r.choice((100, 1000, 4000))
    jobs = tuple(a_job(r, devices, mix) for _ in range(count))
    early = r.choice((60, seconds))  # so that what follows from it is seen for long
    pokes = [a_poke(r, count, devices, early, mix) for _ in range(r.choice((0, 3, 10, 40)))]
    return Scenario(devices, seconds, jobs, tuple(sorted(pokes, key=lambda p: p.at)))
