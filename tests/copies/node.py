"""A node with host memory for copies: what it says, and jobs that check their memory."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.conftest import Start
from tests.copies.keeper import Keeper
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line, output, tell
from tests.support.swap_programs import PROGRAM

MIB = 1 << 20
SIZE = 160 * MIB
SWAP = "tq:100ms,memory:swap"

# It has more than half of the device; each line that it reads is a turn.
JOB = (
    PROGRAM
    + """
SIZE = 160 * MIB
p = ok(d.cuMemAlloc(SIZE)); fill(p, SIZE, 0); ok(d.cuCtxSynchronize())
say("has it")
for turn in range(1, 100):
    if not sys.stdin.readline(): break
    check(p, SIZE, turn - 1); fill(p, SIZE, turn); ok(d.cuCtxSynchronize())
    say(turn)
"""
)


def status(leased: Leased) -> dict[str, Any]:
    return ask(leased.admin_socket, {"op": "status"})


def copies_of(leased: Leased, job: int) -> int:
    found = {one["job_id"]: one["copies_bytes"] for one in status(leased)["tenants"]}
    return int(found.get(job, 0))


def taken(leased: Leased) -> int:
    return int(status(leased)["copies"]["taken_bytes"])


def kept(keeper: Keeper) -> int:
    """Bytes that the keeper has pages for. It may close files while they are looked at."""
    return sum(pages_of(fd) for fd in Path(f"/proc/{keeper.pid}/fd").iterdir())


def pages_of(fd: Path) -> int:
    """Bytes; 0: it is no memory for copies, or is closed by now."""
    try:
        ours = str(fd.readlink()).startswith("/memfd:gpu-lease")
        return fd.stat().st_blocks * 512 if ours else 0
    except OSError:
        return 0


def started(tenant: Start, job: int, options: str = SWAP) -> tuple[subprocess.Popen[str], int]:
    process = tenant(job, options, "-c", JOB)
    pid = int(line(process))
    assert line(process) == "has it"
    return process, pid


def turn(job: subprocess.Popen[str]) -> int:
    """It looks at its memory, and writes."""
    tell(job)
    return int(line(job))


def end(*jobs: subprocess.Popen[str], keeper: Keeper | None = None) -> None:
    """keeper: nothing of all that it has is left then."""
    for job in jobs:
        assert job.stdin is not None
        job.stdin.close()
        job.stdin = None
        output(job)
    if keeper is not None:
        wait_until("all of it to be given back", lambda: kept(keeper) == 0)
