"""What dividing the GPU does for chains of two, four and eight components, each in one job.

Each component runs kernels for an item, waits for them, and passes the item on. A time slice of the
driver's holds two of the kernels. Each chain runs on a GPU that is shared by MPS, where the daemon
divides the multiprocessors among components, and on one that is not, where it divides time.

`gain_over_plain`: of the throughput of the last component, as the emulated GPU counts its kernels,
with what the daemon has kept under MPS, over plain MPS before anything was tried; `slices_gain`:
the same of what it has kept by time slices. `gain`: as the daemon has compared, by turns.
`again`: what the daemon has found for the chain of two where components are started again with each
other part (gpu-lease-component), and how often one was started at most.
`trials`: how many there were, and `bound`: how many there may be. `division`: what is kept, per
cent.

The emulated GPU runs kernels of one process at a time. Under MPS a process with a part of the
multiprocessors has the GPU for as much of the time, and a kernel that passes over memory is faster
meanwhile than in proportion, as measured on an H200 (tests/emugpu/models/emu-h200-mps.ini). It does
not model that such kernels together cannot have more than the memory's bandwidth.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from leased.api.client import ask
from leased.chains.optimiser import KEEPS, PLAIN
from tests.bench.slices import Job, Site, end, shared
from tests.emugpu.mps_control import install
from tests.emugpu.programs import go_on
from tests.support.chain import COMPONENT, LIBRARY

MODEL = "emu-h200-mps"
MIB, ROUNDS = 1, 16  # 3.9 ms on the model, 1 ms on a card
# Kernels of each component for an item.
CHAINS = {2: (3, 8), 4: (3, 8, 5, 3), 8: (3, 8, 5, 3, 2, 4, 1, 3)}
BEFORE_S, AFTER_S, MOST_S = 8.0, 16.0, 1300.0  # where the machine is so busy that trials are long


def measure(work: Path) -> Iterator[dict[str, Any]]:
    for n, kernels in CHAINS.items():
        found = compared(work / str(n), kernels)
        if n == 2:
            found["again"] = started_again(work / "again", kernels)
        yield found


def compared(work: Path, kernels: tuple[int, ...]) -> dict[str, Any]:
    """A chain in both ways."""
    with by_mps(work / "mps") as site:
        plain, kept, found = searches(site, kernels)
    with shared(work / "slices", MODEL) as site:
        _, by_slices, slices = searches(site, kernels)
    return {
        "gain_over_plain": kept / plain - 1,
        "slices_gain": by_slices / plain - 1,
        **found,
        "slices": slices,
    }


def started_again(work: Path, kernels: tuple[int, ...]) -> dict[str, Any]:
    """A chain whose components keep the part with which they begin."""
    with by_mps(work) as site:
        assert site.leased is not None
        starts = work / "starts"
        site.leased.env |= {"PARTS": "none", "STARTED_BY": str(COMPONENT), "STARTS": str(starts)}
        _, _, found = searches(site, kernels)
        most = max(Counter(starts.read_text().split()).values())
    return found | {"starts_most": most}


@contextmanager
def by_mps(work: Path) -> Iterator[Site]:
    work.mkdir(parents=True)
    config = f'mps_control = "{install(work)}"\n[device]\nspace = "mps"\n'
    with shared(work, MODEL, config=config) as site:
        yield site
        pids = [int(file.read_text()) for file in (work / "run" / "mps").glob("*/*.pid")]
    for pid in pids:
        os.kill(pid, signal.SIGTERM)


def searches(site: Site, kernels: tuple[int, ...]) -> tuple[float, float, dict[str, Any]]:
    """The throughput before a search and after it, and what status says of it."""
    command = (sys.executable, "-m", "tests.bench.chains.parts.pipeline", MIB, ROUNDS, *kernels)
    assert site.leased is not None
    site.leased.env["GPU_LEASE_CHAIN_LIBRARY"] = str(LIBRARY)
    process = site.start(Job(options="chain:bench,memory:swap"), *command)
    go_on(process)
    before = throughput(site, BEFORE_S)
    found = searched(site.leased.admin_socket)
    after = throughput(site, AFTER_S)
    end(process)
    print(f"{len(kernels)} components: {figures(found)}", file=sys.stderr, flush=True)
    return before, after, figures(found)


def throughput(site: Site, seconds: float) -> float:
    """Kernels of the last component, for each second."""
    began, first = time.monotonic(), kernels_of_last(site)
    time.sleep(seconds)
    return (kernels_of_last(site) - first) / (time.monotonic() - began)


def kernels_of_last(site: Site) -> int:
    """Processes that came last stand first; a chain's keeper runs none."""
    there = [each for each in site.gpu.stats()["processes"] if each["alive"]]
    return next((int(each["kernels"]) for each in there if each["kernels"]), 0)


def searched(admin: Path, gpu: int = 0, most_s: float = MOST_S) -> Any:
    """What status says of the chain that has the GPU once a search has ended."""
    until, found = time.monotonic() + most_s, None
    while time.monotonic() < until:
        devices = ask(admin, {"op": "status"})["devices"]
        (found,) = [device["chain"] for device in devices if device["index"] == gpu]
        if found and found["why"] in (KEEPS, PLAIN):
            return found
        time.sleep(0.5)
    raise RuntimeError(f"no search has ended within {most_s:.0f} s: {found}")


def figures(chain: Any) -> dict[str, Any]:
    """Of what status says of a chain."""
    return {
        "components": len(chain["components"]),
        "by": chain["by"],
        "gain": chain["gain"],
        "trials": len(chain["trials"]),
        "bound": chain["bound"],
        "division": [round(100 * one["part"]) for one in chain["components"]],
    }
