"""What the gate costs a submitting call: `make bench NAME=gate` writes build/bench/gate.json.

A driver that does nothing stands behind the interposer, so that the difference
between a direct and a gated call is the gate's. The lease is the real daemon's.
`added_ns` is for cuLaunchKernel in one thread; `threads`: the same for so many at once;
`bounded_added_ns`: while another job waits, when work in flight is bounded.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.bench import write
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support import tenant

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "meson" / "tests" / "bench"
ROUNDS = 150


def start(
    leased: Leased, env: dict[str, str], job: int, threads: int, rounds: int
) -> subprocess.Popen[str]:
    """gate_cost as a job that shares the GPU and is never revoked."""
    program = str(BUILD / "gate_cost"), str(threads), str(rounds)
    return subprocess.Popen(
        tenant.command(leased.admin_socket, job, "tq:10m,lock:on", *program),
        cwd=ROOT,
        env=env,
        stdout=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """{"launch": [direct, gated], "memset": [...], "median": gated launches}, ns a call."""
    out, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"gate_cost failed ({process.returncode})")
    answer: dict[str, Any] = json.loads(out)
    return answer


def measure_bounded(leased: Leased, env: dict[str, str]) -> float:
    """Added ns of a launch while another job waits all the time."""
    holder = start(leased, env, 100, 1, 10 * ROUNDS)
    wait_until("the first job to hold", lambda: "holds" in states(leased))
    waiter = start(leased, env, 101, 1, 1)
    seen = finish(holder)
    finish(waiter)
    return round(float(seen["median"]) - float(seen["launch"][0]), 2)


def states(leased: Leased) -> list[str]:
    return [t["state"] for t in ask(leased.admin_socket, {"op": "status"})["tenants"]]


def added(pair: list[float]) -> float:
    return round(pair[1] - pair[0], 2)


def run(work: Path) -> dict[str, Any]:
    with EmulatedGpu(work / "gpu") as gpu:
        base = os.environ | gpu.env
        env = base | {"LD_LIBRARY_PATH": f"{BUILD}:{gpu.env['LD_LIBRARY_PATH']}"}
        with Leased(work / "leased", work / "run", base) as leased:
            seen = {n: finish(start(leased, env, n, n, ROUNDS)) for n in (1, 8)}
            bounded = measure_bounded(leased, env)
    direct, gated = seen[1]["launch"]
    return {
        "direct_ns": direct,
        "gated_ns": gated,
        "added_ns": added(seen[1]["launch"]),
        "memset_added_ns": added(seen[1]["memset"]),
        "bounded_added_ns": bounded,
        "threads": {str(n): added(pair["launch"]) for n, pair in seen.items()},
        "cores": os.cpu_count(),
    }


def main() -> None:
    print(json.dumps(write("gate", run)))


if __name__ == "__main__":
    main()
