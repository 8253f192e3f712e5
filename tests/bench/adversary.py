"""The arbiter against an adversary: `make bench NAME=adversary` writes build/bench/adversary.json.

Jobs speak the protocol as it can be spoken, and nobody behaves: messages are late, processes
stop, are frozen, hang and die, memory turns out to be fixed, the site drains, locks and restarts
(tests/core/scenario.py). After every event it is looked at whether the rules hold
(tests/core/judge.py). Time is simulated. From a first seed, which is printed, one run after the
other, until there have been enough of both.

runs, events: how many there were. violations: runs that broke a rule; each is printed with its
seed and the smallest scenario found that breaks it. worst_wait_over_bound: the longest wait of
all, over the bound that docs/daemon.md gives. us_per_event: microseconds of processor time that
the arbiter takes for an event with 1,000 tenants that always want their GPU: on one GPU; the same
with half of them lock:off; gangs of eight on eight GPUs.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from leased import policy
from leased.core.arbiter import (
    Action,
    Arbiter,
    Event,
    MemoryChanged,
    Opened,
    PolicySet,
    Released,
    Requested,
    Revoke,
    Tick,
)
from tests.bench import write
from tests.core.adversary import Run, counterexample, run

S = 1_000_000_000
GIB = 1 << 30
TENANTS, TIMED = 1000, 6000
RUNS, EVENTS = 1000, 1_000_000
BATCH = 8


class Crowd:
    """Tenants that always want their devices, and how long the arbiter takes for each event."""

    def __init__(self, jobs: Iterable[tuple[tuple[int, ...], str]], policy_name: str):
        listed = list(jobs)
        devices = 1 + max(device for gang, _ in listed for device in gang)
        self.a = Arbiter({f"d{n}": 100 * GIB for n in range(devices)}, policy.make)
        for uuid in self.a.devices:
            self.a.handle(PolicySet(uuid, policy_name), 0)
        self.now = 0
        self.took: list[int] = []
        for tenant, (gang, lock) in enumerate(listed):
            uuids = tuple(f"d{n}" for n in gang)
            self.a.handle(Opened(tenant, uuids, lock, S), 0)
            for uuid in uuids:
                self.a.handle(MemoryChanged(tenant, uuid, 60 * GIB), 0)

    def do(self, event: Event) -> list[Action]:
        start = time.thread_time_ns()
        actions = self.a.handle(event, self.now)
        self.a.next_deadline()
        self.took.append(time.thread_time_ns() - start)
        return actions

    def measure(self, events: int) -> float:
        """Mean microseconds of so many events, after all have asked."""
        todo = [x for tenant in list(self.a.tenants) for x in self.do(Requested(tenant))]
        self.took.clear()
        while len(self.took) < events:
            for action in todo:
                if isinstance(action, Revoke):
                    self.do(Released(action.tenant, action.epoch))
                    self.do(Requested(action.tenant))
            due = self.a.next_deadline()
            assert due is not None, "somebody always waits"
            self.now = max(self.now, due)
            todo = self.do(Tick())
        return round(sum(self.took) / len(self.took) / 1000, 1)


def us_per_event(name: str) -> dict[str, float]:
    everywhere = tuple(range(8))
    crowds = {
        "ordinary_1000": (((0,), "on") for _ in range(TENANTS)),
        "half_lock_off_1000": (((0,), "off" if n % 2 else "on") for n in range(TENANTS)),
        "gangs_1000": ((everywhere, "on") for _ in range(TENANTS)),
    }
    return {crowd: Crowd(jobs, name).measure(TIMED) for crowd, jobs in crowds.items()}


def mixed_us(name: str) -> float:
    """The same with any gangs of eight GPUs and any locks, for the table only."""
    r = random.Random(1)
    sizes = (tuple(sorted(r.sample(range(8), r.randint(1, 8)))) for _ in range(TENANTS))
    crowd = Crowd(((gang, r.choice(("on", "auto", "off"))) for gang in sizes), name)
    return crowd.measure(TIMED)


def runs(name: str, first: int, seconds: float, least: int, events: int) -> Iterator[Run]:
    """Of seeds from `first` on: at least so many with so many events, unless the time is over."""
    start, made, seen = time.monotonic(), 0, 0
    with multiprocessing.Pool(os.cpu_count()) as pool:
        while (made < least or seen < events) and time.monotonic() - start < seconds:
            batch = range(first + made, first + made + BATCH * (os.cpu_count() or 1))
            for found in pool.imap_unordered(functools.partial(run, policy_name=name), batch):
                made, seen = made + 1, seen + found.events
                yield found


def measure(name: str, first: int, seconds: float, least: int, events: int) -> dict[str, Any]:
    report: dict[str, Any] = {"runs": 0, "events": 0, "violations": 0}
    worst = 0.0
    broken = []
    for found in runs(name, first, seconds, least, events):
        report["runs"] += 1
        report["events"] += found.events
        worst = max(worst, found.worst)
        if found.fault is not None:
            print(f"seed {found.seed}: {found.fault}", flush=True)
            broken.append(found.seed)
    for seed in broken[:3]:
        print(counterexample(seed, policy_name=name), flush=True)
    report["violations"] = len(broken)
    return report | {"worst_wait_over_bound": round(worst, 3), "us_per_event": us_per_event(name)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    parser.add_argument("--policy", choices=policy.names(), default=policy.DEFAULT)
    parser.add_argument("--seconds", type=float, default=560, help="of runs, at most")
    parser.add_argument("--runs", type=int, default=RUNS, help="at least")
    parser.add_argument("--events", type=int, default=EVENTS, help="at least")
    chosen = parser.parse_args()
    print(f"seeds from {chosen.seed} on", flush=True)

    def adversary(_: Path) -> dict[str, Any]:
        return measure(chosen.policy, chosen.seed, chosen.seconds, chosen.runs, chosen.events)

    report = write("adversary", adversary)
    for name, value in report.items():
        if name != "us_per_event":
            print(f"{name:32}{value:>12}")
    for name, value in (
        report["us_per_event"] | {"any gangs and locks": mixed_us(chosen.policy)}
    ).items():
        print(f"us an event, {name:19}{value:>12}  <= 200")
    if report["violations"]:
        raise SystemExit("rules were broken")


if __name__ == "__main__":
    main()
