"""What the first handoff of a job takes beside later ones: `make bench NAME=first_handoff`,
build/bench/first_handoff.json.

One job works with 220 MiB of the (emulated) device of 256, another one has allocated as much and
has not used it yet. When host memory for what could have to leave is made ahead
(`limits.swap_ahead`), that is waited for; then the other one begins. `first_s`: from the last work
of the one to the first work of the other; `later_s`: the median of the handoffs after both have
left once. Both without and with memory made ahead, and the ratios of the two. A job holds the
device for 20 times what a handoff takes, so this runs for some minutes.

The emulated link (1.1 GiB/s) is slower than the kernel makes memory (4 GiB/s), so here the first
handoff hides behind its copies what it makes: the two ratios are about the same. A real link is
ten times as fast as the kernel makes memory.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from pathlib import Path

from leased.api.client import ask
from tests.bench import write
from tests.bench.handoff import LOOK_S, MODEL, OPTIONS, SIZE, SWAPS, gaps, python
from tests.copies.keeper import Keeper
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support import tenant
from tests.support.programs import line, tell
from tests.support.together import zip_strict

RUNS = 3
HANDOFFS = 5
BOTH = 2  # handoffs until both have left once

# As SWAPS, once it has heard of it.
LATE = SWAPS.replace(
    "ok(d.cuMemsetD32(p, 1", 'say("has it"); sys.stdin.readline()\nok(d.cuMemsetD32(p, 1'
)


def is_ready(leased: Leased) -> bool:
    """What could have to leave of both is there and registered, as far as is told: it is twice
    the same."""
    tenants = ask(leased.admin_socket, {"op": "status"})["tenants"]
    return all(t["copies_bytes"] >= t["ahead_bytes"] > 0 for t in tenants)


def one(work: Path, ahead: str) -> tuple[float, float]:
    """(first, later) in seconds."""
    with (
        EmulatedGpu(work / "gpu", MODEL, trace=True) as gpu,
        Keeper(work / "run") as keeper,
        Leased(
            work / "leased",
            keeper.path.parent,
            os.environ | gpu.env,
            f'[limits]\nswap_ahead = "{ahead}"\n',
        ) as leased,
    ):
        jobs: list[subprocess.Popen[str]] = []
        for number, code in ((1, SWAPS), (2, LATE)):
            before = tenant.command(leased.admin_socket, number, OPTIONS)
            jobs.append(python(code, leased.env, *before))
            line(jobs[-1])
        if ahead != "0%":
            wait_until("host memory made ahead", lambda: is_ready(leased))
            time.sleep(1)  # it is registered meanwhile, which nothing tells
        tell(jobs[1])
        while len(gaps(gpu)) < BOTH + HANDOFFS:
            time.sleep(LOOK_S)
        found = gaps(gpu)
        for job in jobs:
            tell(job)
            job.wait()
    return found[0], statistics.median(found[BOTH:])


def run(work: Path) -> dict[str, float]:
    found: dict[str, float] = {"bytes": SIZE}
    for name, ahead in (("needed", "0%"), ("ahead", "100%")):
        pairs = [one(work / f"{name}{n}", ahead) for n in range(RUNS)]
        first, later = (statistics.median(times) for times in zip_strict(*pairs))
        found |= {
            f"first_s_{name}": round(first, 4),
            f"later_s_{name}": round(later, 4),
            f"ratio_{name}": round(first / later, 3),
        }
    return found


def main() -> None:
    print("On the emulated GPU:", json.dumps(write("first_handoff", run)))


if __name__ == "__main__":
    main()
