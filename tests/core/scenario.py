"""What the adversary does: jobs, and what happens to them from outside. Made from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

CAPACITY = 100  # GiB of a device


@dataclass(frozen=True, repr=False)
class Job:
    """A job with one process. Times in ms; size and fixed: GiB on each of its devices.

    It computes for `busy`, then needs the GPU again after `pause`. drain: until what it has
    submitted is finished; delay: of every message, either way; speed: GiB/s of its memory.
    """

    gang: tuple[int, ...]
    lock: str = "on"
    quantum: int = 1000
    swaps: bool = False
    size: int = 0
    fixed: int = 0
    opens: int = 0
    busy: int = 500
    pause: int = 100
    drain: int = 1
    delay: int = 0
    speed: int = 10

    def __repr__(self) -> str:
        """What is not as usual."""
        usual = Job(self.gang)
        odd = [f"{k}={v!r}" for k, v in vars(self).items() if v != getattr(usual, k)]
        return f"Job({', '.join([repr(self.gang), *odd])})"


@dataclass(frozen=True)
class Poke:
    """At `at` ms something is done to a job, or to a device: number `who`."""

    at: int
    what: str
    who: int
    amount: int = 0


@dataclass(frozen=True)
class Scenario:
    devices: int
    seconds: int
    jobs: tuple[Job, ...]
    pokes: tuple[Poke, ...] = ()

    def __str__(self) -> str:
        jobs = "".join(f"    {job!r},\n" for job in self.jobs)
        pokes = "".join(f"    {poke!r},\n" for poke in self.pokes)
        return f"Scenario({self.devices}, {self.seconds}, (\n{jobs}), (\n{pokes}))"


OF_JOB = ("stop", "freeze", "thaw", "die", "close", "size", "fixed", "hang", "finish", "widen")
OF_DEVICE = ("lock", "quantum", "drain", "resume", "mode", "room")
LOCKS = ("on", "off", "auto", "none")


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
        return Poke(at, r.choice(OF_JOB), r.randrange(jobs), r.randint(0, 100))
    return Poke(at, r.choice(OF_DEVICE), r.randrange(devices), r.randint(0, 100))


def random_scenario(seed: int) -> Scenario:
    r = random.Random(seed)
    devices = r.choice((1, 1, 2, 2, 3, 8))
    count = r.randint(35, 60) if r.random() < 0.1 else r.randint(2, 12)
    mix, seconds = a_mix(r), r.choice((100, 1000, 4000))
    jobs = tuple(a_job(r, devices, mix) for _ in range(count))
    early = r.choice((60, seconds))  # so that what follows from it is seen for long
    pokes = [a_poke(r, count, devices, early) for _ in range(r.choice((0, 3, 10, 40)))]
    return Scenario(devices, seconds, jobs, tuple(sorted(pokes, key=lambda p: p.at)))


# -- shrinking ------------------------------------------------------------------------


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
        pokes = tuple(p for p in scenario.pokes if p.what in OF_JOB or p.who < scenario.devices - 1)
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
        replace(poke, who=place[poke.who]) if poke.what in OF_JOB else poke
        for poke in scenario.pokes
        if poke.what not in OF_JOB or poke.who in place
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
