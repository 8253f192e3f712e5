"""The arbiter against an adversary: `make bench NAME=adversary` writes build/bench/adversary.json.

Jobs speak the protocol as it can be spoken, and nobody behaves: messages are late, processes
stop, are frozen, hang and die, memory turns out to be fixed, jobs are parked and suspended, the
site drains, locks, reloads and restarts. What jobs there are is drawn too (tests/core/mixes.py).
After every event it is looked at whether the rules hold (tests/core/judge.py). Time is
simulated. From a first seed, which is printed, one run after the other, until there have been
enough of both.

runs, events: how many there were. violations: runs that broke a rule; each is printed with its
seed and the smallest scenario found that breaks it. worst_wait_over_bound: the longest wait of
all, over the bound that docs/daemon.md gives. us_per_event: microseconds of processor time that
the arbiter takes for an event with 1,000 tenants that always want their GPU: on one GPU; the same
with half of them lock:off; gangs of eight on eight GPUs. us_per_event_mixed: the same for mixes of
gangs, locks and kinds of memory (tests/bench/crowds.py).
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from leased import policy
from tests.bench import write
from tests.bench.crowds import CROWDS, MIXES, us_per_event
from tests.core.adversary import Run, counterexample, run
from tests.core.mixes import any_scenario

RUNS, EVENTS = 1000, 1_000_000
BATCH = 8


def of(name: str) -> Callable[[int], Run]:
    """A run from a seed, under the policy of that name."""
    return functools.partial(run, policy_name=name, draw=any_scenario)


def runs(name: str, first: int, seconds: float, least: int, events: int) -> Iterator[Run]:
    """Of seeds from `first` on: at least so many with so many events, unless the time is over."""
    start, made, seen = time.monotonic(), 0, 0
    with multiprocessing.Pool(os.cpu_count()) as pool:
        while (made < least or seen < events) and time.monotonic() - start < seconds:
            batch = range(first + made, first + made + BATCH * (os.cpu_count() or 1))
            for found in pool.imap_unordered(of(name), batch):
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
        print(counterexample(seed, policy_name=name, draw=any_scenario), flush=True)
    report["violations"] = len(broken)
    return report | {
        "policy": name,
        "worst_wait_over_bound": round(worst, 3),
        "us_per_event": us_per_event(name, CROWDS),
        "us_per_event_mixed": us_per_event(name, MIXES),
    }


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
    crowds = report.pop("us_per_event") | report.pop("us_per_event_mixed")
    for name, value in report.items():
        print(f"{name:32}{value:>12}")
    for name, value in crowds.items():
        print(f"us an event, {name:19}{value:>12}  <= 200")
    if report["violations"]:
        raise SystemExit("rules were broken")


if __name__ == "__main__":
    main()
