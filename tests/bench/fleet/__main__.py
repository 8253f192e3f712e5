"""`make bench NAME=fleet DATA=FOLDER`; ARGS: `--load`, `--times`, as `--help` says."""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from leased.matching.model import SHIPPED, read
from tests.bench import ROOT
from tests.bench.fleet import trace as traces
from tests.bench.fleet.pictures import draw
from tests.bench.fleet.run import Outcome, Simulation
from tests.bench.fleet.speeds import Speeds
from tests.bench.fleet.systems import BestFit, Exclusive, Matched, TimeSharing
from tests.bench.fleet.tasks import MEMORY, Day, make
from tests.bench.fleet.trace import Trace

LOAD = 2.5
PAPER = {
    "utilisation": [0.26, 0.76],
    "jct_times_better": [1.1, 2.24],
    "evicted_share": 0.015,
    "online_slowdown_p99": 1.153,
}


def system(name: str, trace: Trace, speeds: Speeds) -> Exclusive:
    if name == "exclusive":
        return Exclusive(trace.nodes, MEMORY)
    if name == "time_sharing":
        return TimeSharing(trace.nodes, MEMORY)
    if name == "without_predictor":
        return BestFit(trace.nodes, MEMORY)
    return Matched(trace.nodes, MEMORY, read(SHIPPED.read_text()), dict(speeds.profiles))


def figures(outcome: Outcome) -> dict[str, Any]:
    """queued: tasks that waited, on average over the day. Times in s."""
    jct, waits = outcome.jct, outcome.waited
    return {
        "utilisation": round(float(np.mean(outcome.busy)), 4),
        "jct_s": round(float(jct.mean())),
        "jct_p50_s": round(float(np.median(jct))),
        "jct_p99_s": round(float(np.quantile(jct, 0.99))),
        "queued": round(float(np.mean(outcome.waiting)), 1),
        "waited_s": round(float(waits.mean())),
        "unfinished": int(np.isnan(outcome.ends).sum()),
        "evicted_share": round(outcome.evicted / max(1, outcome.starts), 5),
        "online_slowdown_p50": round(outcome.slowdown(0.5), 4),
        "online_slowdown_p99": round(outcome.slowdown(0.99), 4),
    }


SYSTEMS = ("exclusive", "time_sharing", "ours", "without_predictor")


def measure(
    trace: Trace, day: Day, speeds: Speeds, systems: Sequence[str] = SYSTEMS
) -> tuple[dict[str, Any], dict[str, Outcome]]:
    found: dict[str, Any] = {}
    outcomes = {}
    for name in systems:
        began = time.perf_counter()
        one = Simulation(day, trace.days, speeds, system(name, trace, speeds), sum(trace.nodes))
        outcomes[name] = one.run()
        found[name] = figures(outcomes[name]) | {"took_s": round(time.perf_counter() - began, 1)}
        print(f"{name}: {json.dumps(found[name])}", flush=True)
    return found, outcomes


def times(trace: Trace, n: int) -> Trace:
    """A fleet n times as large, with as many times the tasks."""
    return Trace(trace.nodes * n, trace.tasks * n, trace.days)


def compared(found: Mapping[str, Any]) -> dict[str, Any]:
    ours = found["ours"]["jct_s"]
    return {
        "utilisation": [found["exclusive"]["utilisation"], found["ours"]["utilisation"]],
        "jct_times_better": {
            name: round(found[name]["jct_s"] / ours, 3) for name in SYSTEMS if name != "ours"
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--load", type=float, default=LOAD, help=f"see tasks.py; {LOAD}")
    parser.add_argument("--times", type=int, default=1, help="a fleet so many times as large")
    parser.add_argument("--only", choices=SYSTEMS, help="one system")
    parser.add_argument("--name", default="fleet", help="of what is written")
    chosen = parser.parse_args()
    if not os.environ.get("DATA"):
        parser.error(f"DATA=FOLDER is missing: files of {traces.FROM}")
    trace = times(traces.read(Path(os.environ["DATA"])), chosen.times)
    shipped = json.loads(SHIPPED.read_text())
    speeds = Speeds.of(shipped)
    servers = [name for name in speeds.names if name.startswith("serve")]
    others = [name for name in speeds.names if name.startswith("train")]
    day = make(trace, servers, others, chosen.load)
    print(
        f"{len(trace.nodes)} nodes, {sum(trace.nodes)} GPUs, {len(day.online)} online tasks, "
        f"{len(day.offline)} submissions of offline ones; pairs measured on {shipped['device']}"
    )
    found, outcomes = measure(trace, day, speeds, [chosen.only] if chosen.only else SYSTEMS)
    found |= {
        "compared": {} if chosen.only else compared(found),
        "paper": PAPER,
        "pairs_measured_on": shipped["device"],
        "emulated": shipped["emulated"],
        "nodes": len(trace.nodes),
        "gpus": sum(trace.nodes),
        "online": len(day.online),
        "offline": len(day.offline),
        "load": chosen.load,
    }
    folder = ROOT / "build" / "bench"
    (folder / f"{chosen.name}.json").write_text(json.dumps(found, indent=1) + "\n")
    draw(outcomes, folder, chosen.name, shipped["device"])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
