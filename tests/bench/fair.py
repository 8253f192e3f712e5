"""What a policy makes of equal demands: `make bench NAME=fair` writes build/bench/fair.json.

Jobs in simulated time (tests/core/world.py), with each policy. Sizes are GiB of a device of 100.

f8: jobs that always want as much as they can get, and the share of all lease time that each has
had: three that swap 90, 5 and 90 GiB; one that always computes beside three that pause for 5 ms
after every 20 ms; one that drains for 8 s, or for 15 s and so overruns, beside two that do not;
one with tq:60 beside twelve with tq:1; the same with tq:30 beside one with tq:1.
f9: three jobs of 45 GiB that swap, 1 s on the GPU and 0.5 s off it, in 2,000 s: handoffs and GiB
that were moved.
busy_idle_s: two jobs that are 22 ms on the GPU and 50 ms off it: seconds for 278 rounds each.
table2: two jobs of 95 GiB with managed memory that compute all the time, tq:30, at 10 GiB/s:
seconds until both have computed for 100 s, without the time that paging takes.
mixes: two jobs of twelve rounds of 10 s that end then, half of the time on the GPU (balanced) or
nine tenths (intense), of 45 GiB each, which fit (light), or of 95 GiB (heavy), at 50 GiB/s, with
memory that is swapped or managed: seconds until both have ended.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from leased import policy
from leased.core.events import SpeedKnown
from tests.bench import write
from tests.core.client import MS
from tests.core.scenario import Job, Poke, Scenario
from tests.core.silent import Silent
from tests.core.world import S, World

ALWAYS = 10**9  # ms
GIB_S = 50  # of the link


class Measured(World):
    """What jobs have had when the time is over."""

    def __init__(self, jobs: list[Job], seconds: int, name: str, gib_s: int = GIB_S):
        super().__init__(
            Scenario(1 + max(max(job.gang) for job in jobs), seconds, tuple(jobs)),
            most_events=10**9,
            policy_name=name,
            judge=Silent,
        )
        self.lease_ns: dict[int, int] = {}
        self.handoffs = self.moved = 0
        for uuid in self.a.devices:
            for swaps in (True, False):
                self.do(SpeedKnown(uuid, swaps, gib_s, said=True))
        self.run()

    def finish(self) -> None:
        for tenant in self.a.tenants:
            used = self.a.usage(tenant, self.now).values()
            self.lease_ns[tenant] = max(usage.lease_ns for usage in used)
            self.handoffs += sum(usage.handoffs for usage in used)
            self.moved += sum(usage.moved_bytes for usage in used)

    def shares(self) -> dict[str, float]:
        total = sum(self.lease_ns.values())
        return {str(job): round(ns / total, 4) for job, ns in self.lease_ns.items()}


def greedy(**other: Any) -> Job:
    return Job((0,), **({"busy": ALWAYS, "pause": 1} | other))


CASES: dict[str, tuple[list[Job], int, int]] = {  # jobs, seconds, GiB/s
    "three_that_swap": (
        [greedy(swaps=True, size=size, speed=10) for size in (90, 5, 90)],
        8_000,
        10,
    ),
    "pauses": (
        [greedy(quantum=10_000), *(greedy(quantum=10_000, busy=20, pause=5) for _ in range(3))],
        1_000,
        GIB_S,
    ),
    "drains": ([greedy(drain=8000), greedy(), greedy()], 1_500, GIB_S),
    "overruns": ([greedy(drain=15_000), greedy(), greedy()], 1_500, GIB_S),
    "quanta_60_and_1": (
        [greedy(quantum=60_000), *(greedy() for _ in range(12))],
        6_000,
        GIB_S,
    ),
    "quanta_30_and_1": ([greedy(quantum=30_000), greedy()], 1_500, GIB_S),
}


def f8(name: str) -> dict[str, dict[str, float]]:
    return {
        case: Measured(list(jobs), seconds, name, gib_s).shares()
        for case, (jobs, seconds, gib_s) in CASES.items()
    }


def f9(name: str) -> dict[str, int]:
    jobs = [greedy(swaps=True, size=45, speed=GIB_S, busy=1000, pause=500) for _ in range(3)]
    world = Measured(jobs, 2000, name)
    return {"handoffs": world.handoffs, "moved_gib": world.moved}


class Timed(Measured):
    """How long it takes until each job has had so much of the GPU: `needs` ms in all."""

    def __init__(self, jobs: list[Job], needs: int, name: str, gib_s: int = GIB_S):
        self.needs = needs
        self.done: dict[int, int] = {}
        super().__init__(jobs, 10_000, name, gib_s)

    def gates_changed(self, gang: tuple[int, ...]) -> None:
        super().gates_changed(gang)
        for tenant, entry in self.entries.items():
            if tenant not in self.done and entry.client.computed_ns >= self.needs * MS:
                self.done[tenant] = self.now
        if len(self.done) == len(self.scenario.jobs):
            self.most_events = 0  # that is all


def busy_idle_s(name: str) -> float:
    jobs = [greedy(busy=22, pause=50, quantum=30_000) for _ in range(2)]
    return round(max(Timed(jobs, 278 * 22, name).done.values()) / S, 3)


def table2(name: str) -> float:
    jobs = [greedy(size=95, quantum=30_000) for _ in range(2)]
    return round(max(Timed(jobs, 100_000, name, gib_s=10).done.values()) / S, 1)


class Ending(Timed):
    """Who has had what it needs goes."""

    def gates_changed(self, gang: tuple[int, ...]) -> None:
        before = set(self.done)
        super().gates_changed(gang)
        for tenant in set(self.done) - before:
            self.timeline.after(0, functools.partial(self.poke, Poke(0, "close", tenant)))


ROUNDS, ROUND_MS = 12, 10_000
SIZES = {"light": 45, "heavy": 95}  # GiB
DEMANDS = {"balanced": 0.5, "intense": 0.9}  # of the time on the GPU
QUANTA = (5, 30, 60)  # seconds


def mix_s(name: str, size: int, part: float, quantum: int, swaps: bool) -> float:
    busy = round(ROUND_MS * part)
    job = greedy(
        **{"size": size, "busy": busy, "pause": ROUND_MS - busy, "quantum": 1000 * quantum},
        **({"swaps": True, "speed": GIB_S} if swaps else {}),
    )
    return round(max(Ending([job, job], ROUNDS * busy, name).done.values()) / S, 1)


def mixes(name: str) -> dict[str, float]:
    return {
        f"{weight}_{demand}, tq:{quantum}, {'swap' if swaps else 'managed'}": mix_s(
            name, size, part, quantum, swaps
        )
        for weight, size in SIZES.items()
        for demand, part in DEMANDS.items()
        for quantum in QUANTA
        for swaps in (True, False)
    }


def measure(_: Path) -> dict[str, Any]:
    names = policy.names()
    return {
        "f8": {name: f8(name) for name in names},
        "f9": {name: f9(name) for name in names},
        "busy_idle_s": {name: busy_idle_s(name) for name in names},
        "table2": {name: table2(name) for name in names},
        "mixes": {name: mixes(name) for name in names},
    }


def main() -> None:
    report, names = write("fair", measure), policy.names()
    for case in CASES:
        for name, cases in report["f8"].items():
            shares = "  ".join(f"{100 * share:.1f}%" for share in list(cases[case].values())[:4])
            print(f"{case:18}{name:8}{shares}")
    for row in ("f9", "busy_idle_s", "table2"):
        for name, found in report[row].items():
            print(f"{row:18}{name:8}{found}")
    for mix in report["mixes"][names[0]]:
        print(f"{mix:34}", *(f"{name} {report['mixes'][name][mix]:>7} s" for name in names))


if __name__ == "__main__":
    main()
