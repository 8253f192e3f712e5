"""The arbiter against an adversary: `make bench NAME=adversary` writes build/bench/adversary.json.

Jobs speak the protocol as it can be spoken, and nobody behaves: messages are late, processes
stop, are frozen, hang and die, memory turns out to be fixed, jobs are parked and suspended, the
site drains, locks, reloads and restarts. What jobs there are is drawn too (tests/core/mixes.py),
in every other run some of them lie (tests/core/lying.py), in every third some have shares
(tests/core/share_mixes.py); in every fourth processes handle signals (tests/core/signalling.py),
in every fifth some jobs are online and some offline (tests/core/class_mixes.py).
After every event it is looked at whether the rules hold (tests/core/judge.py). Time is
simulated. From a first seed, which is printed, one run after the other, until there have been
enough of both.

runs, events: how many there were, at least 1,000 and 1,000,000 with each policy. violations: runs
that broke a rule; each is printed with its seed and the smallest scenario found that breaks it.
seconds: how long that took: five minutes of two processors for three million events.
worst_wait_over_bound: the longest wait of all, over the bound that docs/daemon.md gives.
policies: all this of each policy. What an event costs is measured by `make bench NAME=core`.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from leased import policy
from tests.bench import write
from tests.core.adversary import Run, counterexample, run
from tests.core.class_mixes import half_classed

RUNS, EVENTS = 1000, 1_000_000
BATCH = 64  # runs for each processor; at the end of a batch all wait for the longest


def of(name: str) -> Callable[[int], Run]:
    """A run from a seed, under the policy of that name."""
    return functools.partial(run, policy_name=name, draw=half_classed)


def ended_quietly() -> None:
    """In a worker: the pool ends it by SIGTERM, which means an end here and nothing else."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def runs(name: str, first: int, end: float, least: int, events: int) -> Iterator[Run]:
    """Of seeds from `first` on: at least so many with so many events, unless the time is over."""
    made = seen = 0
    with multiprocessing.get_context("fork").Pool(os.cpu_count(), ended_quietly) as pool:
        while (made < least or seen < events) and time.monotonic() < end:
            batch = range(first + made, first + made + BATCH * (os.cpu_count() or 1))
            for found in pool.imap_unordered(of(name), batch):
                made, seen = made + 1, seen + found.events
                yield found


def measure(name: str, first: int, end: float, least: int, events: int) -> dict[str, Any]:
    """Runs with the policy of that name."""
    start = time.monotonic()
    found = [show(run) for run in runs(name, first, end, least, events)]
    broken = [run.seed for run in found if run.fault is not None]
    for seed in broken[:3]:
        print(counterexample(seed, policy_name=name, draw=half_classed), flush=True)
    return {
        "runs": len(found),
        "events": sum(run.events for run in found),
        "violations": len(broken),
        "seconds": round(time.monotonic() - start),
        "worst_wait_over_bound": round(max((run.worst for run in found), default=0.0), 3),
    }


def show(found: Run) -> Run:
    if found.fault is not None:
        print(f"seed {found.seed}: {found.fault}", flush=True)
    return found


def together(of: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The sums of what all policies had, and the worst of it."""
    report: dict[str, Any] = {
        what: sum(one[what] for one in of.values())
        for what in ("runs", "events", "violations", "seconds")
    }
    report["worst_wait_over_bound"] = max(one["worst_wait_over_bound"] for one in of.values())
    return report | {"policies": of}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=time.time_ns() % 1_000_000_000)
    parser.add_argument("--policy", choices=policy.names(), help="this one alone")
    parser.add_argument("--seconds", type=float, default=3600, help="of all runs, at most")
    parser.add_argument("--runs", type=int, default=RUNS, help="at least, with each policy")
    parser.add_argument("--events", type=int, default=EVENTS, help="at least, with each policy")
    chosen = parser.parse_args()
    print(f"seeds from {chosen.seed} on", flush=True)
    names = [chosen.policy] if chosen.policy else policy.names()
    end = time.monotonic() + chosen.seconds
    least = chosen.runs, chosen.events

    def adversary(_: Path) -> dict[str, Any]:
        return together({name: measure(name, chosen.seed, end, *least) for name in names})

    report = write("adversary", adversary)
    for name, one in report["policies"].items():
        for what in ("runs", "events", "violations", "seconds", "worst_wait_over_bound"):
            print(f"{name:8}{what:32}{one[what]:>12}")
    if report["violations"]:
        raise SystemExit("rules were broken")
    missed = [name for name, one in report["policies"].items() if not one["runs"]]
    if missed:
        raise SystemExit(f"no time was left for {', '.join(missed)}: give more --seconds")


if __name__ == "__main__":
    main()
