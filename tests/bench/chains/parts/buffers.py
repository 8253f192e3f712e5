"""What buffers by handle are worth, on the emulated GPU.

`by_handle_of_host_copies`: how many times as fast a component passes so much data to another one of
its job by handle as through pinned host memory that both share.
`handle_us_p50`: from before a put until another process has the buffer, through a pipe; the larger
of those of 4 KiB and of 64 MiB. `handles`: how many were passed for it, `leaked`: what is left of
them (buffers, descriptors). `killed`: components that are killed at random (endurance.py). HANDLES
and KILLS in the environment say how many, a million and a thousand if not. `parked`: `bytes` of
buffers that left the GPU for another job's lease, and the words that were `wrong` when they had
come back.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests.bench.handoff import moved, python
from tests.emugpu.programs import finish
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.support import tenant
from tests.support.chain import LIBRARY, SWAP, Components

MIB = 1 << 20
SIZE = 64 * MIB
PASSES = 20
HANDLES = int(os.environ.get("HANDLES", "1000000"))
KILLS = int(os.environ.get("KILLS", "1000"))
MODEL = "emu-h200-medium"
PARKED = 4  # buffers
KEEPER_ENDS_S = 30  # at most after its last component
MOST_S = 3600  # that a million handles take where the machine is busy
# A job that fits only without the buffers.
OTHER = """
from tests.emugpu.program_api import *
setup()
p = ok(d.cuMemAlloc(850 * MIB)); ok(launch("fill", p, 1024, 1)); ok(d.cuCtxSynchronize())
"""


def job(leased: Leased, number: int, code: str) -> str:
    """Run a program as a job; what it printed."""
    env = leased.env | {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)}
    command = tenant.command(leased.admin_socket, number, SWAP)
    return finish(python(code, env, *command), timeout=MOST_S)


def pair(leased: Leased) -> dict[str, Any]:
    """What the two components of pair.py measure."""
    code = (
        "import sys; from tests.bench.chains.parts.pair import main; "
        f"sys.argv = ['', '{SIZE}', '{PASSES}', '{HANDLES}']; main()"
    )
    found: dict[str, Any] = json.loads(job(leased, 1, code))
    return found


def kill(leased: Leased) -> dict[str, int]:
    """What endurance.py measures, and the descriptors that the daemon has more afterwards."""
    code = (
        "import json; from tests.bench.chains.parts.endurance import measure; "
        f"print(json.dumps(measure({KILLS})), flush=True)"
    )
    assert leased.daemon is not None
    files = Path(f"/proc/{leased.daemon.process.pid}/fd")
    before = len(list(files.iterdir()))
    found: dict[str, int] = json.loads(job(leased, 2, code))
    until = time.monotonic() + KEEPER_ENDS_S
    while (more := len(list(files.iterdir())) - before) and time.monotonic() < until:
        time.sleep(0.1)
    return found | {"descriptors": more}


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
        killed = kill(leased)
        components = ends.enter_context(Components(leased))
        parked = park(components, gpu)
    return {
        "by_handle_of_host_copies": {"64MiB": round(measured["host_s"] / measured["handle_s"], 1)},
        "handle_us_p50": round(max(measured["handle_us"].values()), 1),
        "handles": HANDLES,
        "leaked": measured["leaked"],
        "killed": killed,
        "parked": parked,
    }
