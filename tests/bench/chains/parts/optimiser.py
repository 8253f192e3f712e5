"""What dividing the GPU does for a chain of four components in one job.

Each component runs kernels for an item, waits for them, and passes the item on. A time slice of the
driver's holds two of the kernels. `gain_over_plain`: of the throughput of the last component, as
the emulated GPU counts its kernels, with the division that the daemon has kept, over the same chain
before anything was tried; `gain`: as the daemon has compared them, by turns. `trials`: how many
there were, and `bound`: how many there may be. `division`: what is kept, per cent.

The emulated GPU models time slices: it runs kernels of one process at a time, all of its SMs work
for that one, and a switch costs time. It does not model kernels of several processes on different
SMs at once, as under MPS.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from leased.api.client import ask
from leased.chains.optimiser import KEEPS, PLAIN
from tests.bench.slices import SLOW, Job, Site, end, shared
from tests.emugpu.programs import go_on

MIB, ROUNDS = 1, 16  # 3.9 ms on the model, 1 ms on a card
KERNELS = (3, 8, 5, 3)  # of each component for an item
BEFORE_S, AFTER_S, MOST_S = 8.0, 16.0, 1300.0  # where the machine is so busy that trials are long


def measure(work: Path) -> dict[str, Any]:
    with shared(work / "optimiser", SLOW) as site:
        command = (sys.executable, "-m", "tests.bench.chains.parts.pipeline", MIB, ROUNDS, *KERNELS)
        process = site.start(Job(options="chain:bench"), *command)
        go_on(process)
        before = throughput(site, BEFORE_S)
        assert site.leased is not None
        found = searched(site.leased.admin_socket)
        after = throughput(site, AFTER_S)
        end(process)
    return {"gain_over_plain": after / before - 1, **figures(found)}


def throughput(site: Site, seconds: float) -> float:
    """Kernels of the last component, for each second."""
    began, first = time.monotonic(), kernels(site)
    time.sleep(seconds)
    return (kernels(site) - first) / (time.monotonic() - began)


def kernels(site: Site) -> int:
    """Processes that came last stand first."""
    there = [each for each in site.gpu.stats()["processes"] if each["alive"]]
    return int(there[0]["kernels"])


def searched(admin: Path, gpu: int = 0) -> Any:
    """What status says of the chain that has the GPU once a search has ended."""
    until = time.monotonic() + MOST_S
    while time.monotonic() < until:
        devices = ask(admin, {"op": "status"})["devices"]
        (found,) = [device["chain"] for device in devices if device["index"] == gpu]
        if found and found["why"] in (KEEPS, PLAIN):
            return found
        time.sleep(0.5)
    raise RuntimeError(f"no search has ended within {MOST_S:.0f} s: {found}")


def figures(chain: Any) -> dict[str, Any]:
    """Of what status says of a chain."""
    return {
        "components": len(chain["components"]),
        "gain": chain["gain"],
        "trials": len(chain["trials"]),
        "bound": chain["bound"],
        "division": [round(100 * one["part"]) for one in chain["components"]],
    }
