"""What buffers by handle are worth, on the emulated GPU.

`by_handle_of_host_copies`: how many times as fast a component passes so much data to another one of
its job by handle as through pinned host memory that both share.
`handle_us_p50`: from before a put until another process has the buffer, through a pipe; the larger
of those of 4 KiB and of 64 MiB. `handles`: how many were passed for it, `leaked`: what is left of
them (buffers, descriptors). `killed`: `times` a random component of three was killed in its work,
and the words of the others that were `wrong` after that. `parked`: `bytes` of buffers that left the
GPU for another job's lease, and the words that were `wrong` when they had come back.
"""

from __future__ import annotations

import json
import os
import random
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench.handoff import moved, python
from tests.emugpu.programs import finish
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.support.chain import LIBRARY, SWAP, Components

MIB = 1 << 20
SIZE = 64 * MIB
PASSES = 20
HANDLES = int(os.environ.get("HANDLES", "20000"))
KILLS = int(os.environ.get("KILLS", "20"))
MODEL = "emu-h200-medium"
PARKED = 4  # buffers
# A job that fits only without the buffers.
OTHER = """
from tests.emugpu.program_api import *
setup()
p = ok(d.cuMemAlloc(850 * MIB)); ok(launch("fill", p, 1024, 1)); ok(d.cuCtxSynchronize())
"""


def job(leased: Leased, number: int, code: str) -> str:
    """Run a program as a job; what it printed."""
    tenant = [sys.executable, "-m", "tests.support.tenant", "--admin", str(leased.admin_socket)]
    env = leased.env | {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    return finish(python(code, env, *tenant, "--job", str(number), "--options", SWAP, "--"))


def pair(leased: Leased) -> dict[str, Any]:
    """What the two components of pair.py measure."""
    code = (
        "import sys; from tests.bench.chains.parts.pair import main; "
        f"sys.argv = ['', '{SIZE}', '{PASSES}', '{HANDLES}']; main()"
    )
    found: dict[str, Any] = json.loads(job(leased, 1, code))
    return found


def kill(components: Components) -> int:
    """Words of others that were wrong after random components were killed."""
    chosen, wrong = random.Random(1), 0
    alive = [components(job=2) for _ in range(3)]
    for turn in range(KILLS):
        for own, one in enumerate(alive):
            one("alloc", 4 * MIB, "-")
            one("fill", one.n - 1, 10 * turn + own)
        handles = [one("put", one.n - 1) for one in alive]
        dead = chosen.randrange(3)
        for own, one in enumerate(alive):
            if own != dead:
                one("get", handles[own - 1], "-")
        alive[dead].tell("alloc", MIB, "-")
        alive[dead].kill()
        for own, one in enumerate(alive):
            if own != dead:
                wrong += int(one("wrong", one.n - 1, 10 * turn + (own - 1) % 3))
                one("drop", one.n - 1)
        alive[dead] = components(job=2)
    return wrong


def park(components: Components, gpu: EmulatedGpu) -> dict[str, int]:
    """Another job needs all of the GPU; then the buffers are looked at."""
    one = components(PARKED * SIZE, job=3)
    for number in range(PARKED):
        one("alloc", SIZE, "-")
        one("fill", number, number)
    before, _ = moved(gpu)
    job(components.leased, 4, OTHER)
    wrong = sum(int(one("wrong", number, number)) for number in range(PARKED))
    return {"bytes": moved(gpu)[0] - before, "wrong": wrong}


def measure(work: Path) -> dict[str, Any]:
    with ExitStack() as ends:
        gpu = ends.enter_context(EmulatedGpu(work / "gpu", MODEL))
        leased = ends.enter_context(Leased(work / "leased", work / "run", os.environ | gpu.env))
        measured = pair(leased)
        components = ends.enter_context(Components(leased))
        wrong = kill(components)
        parked = park(components, gpu)
    return {
        "by_handle_of_host_copies": {"64MiB": round(measured["host_s"] / measured["handle_s"], 1)},
        "handle_us_p50": round(max(measured["handle_us"].values()), 1),
        "handles": HANDLES,
        "leaked": measured["leaked"],
        "killed": {"times": KILLS, "wrong": wrong},
        "parked": parked,
    }
