"""Record two jobs that take turns on the emulated GPU: python -m tests.sim.recorded.

Writes tests/sim/data/turns-2s.record and turns-6s.record, which differ in the jobs' quantum
alone. Test data: to be made anew when a release cannot read it any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from leased.api.client import ask
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support import tenant
from tests.support.programs import SET_UP
from tests.support.work_dir import work_dir

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(__file__).resolve().parent / "data"
MEMORY = 140 << 20  # of each job, on a GPU of 256 MiB
QUANTA_S = (2, 6)
# Of each job: steps of a burst, ms of the pause after it, and how often both. A step computes for
# a quarter of a second and writes all memory; the next one is submitted while it computes, so that
# a busy host makes no pauses.
JOBS = ((24, 1000, 2), (20, 2500, 2))
STEP_MS = 250

PROGRAM = (
    SET_UP
    + f"""
import time
steps, pause, cycles = map(int, sys.argv[1:])
memory = ok(d.cuMemAlloc({MEMORY}))
events = [ok(d.cuEventCreate(0)) for _ in range(2)]
for _ in range(cycles):
    for n in range(steps):
        ok(d.cuMemsetD8Async(memory, n, {MEMORY}, 0))
        for _ in range(5):
            ok(spin({STEP_MS // 5}_000_000))
        ok(d.cuEventSynchronize(events[(n + 1) % 2]))
        ok(d.cuEventRecord(events[n % 2], 0))
    ok(d.cuCtxSynchronize())
    time.sleep(pause / 1000)
"""
)


def run_job(leased: Leased, number: int, quantum_s: int) -> None:
    """To its end."""
    options = f"tq:{quantum_s},lock:on,memory:swap"
    program = sys.executable, "-c", PROGRAM, *map(str, JOBS[number - 1])
    command = tenant.command(leased.admin_socket, number, options, *program)
    subprocess.run(command, cwd=ROOT, env=leased.env, check=True)
    ask(leased.admin_socket, {"op": "job_end", "job_id": number})


def run_jobs(leased: Leased, quantum_s: int) -> None:
    """The second comes when the first one computes."""
    with ThreadPoolExecutor() as pool:
        first = pool.submit(run_job, leased, 1, quantum_s)
        wait_until("the first job to compute", lambda: _holders(leased) == [1])
        second = pool.submit(run_job, leased, 2, quantum_s)
        first.result()
        second.result()


def _holders(leased: Leased) -> list[int]:
    found: list[int] = ask(leased.admin_socket, {"op": "status"})["devices"][0]["holders"]
    return found


def main() -> None:
    DATA.mkdir(exist_ok=True)
    for quantum_s in QUANTA_S:
        place = work_dir()
        file = DATA / f"turns-{quantum_s}s.record"
        extra = f'record = "{place / "record"}"\n'
        with EmulatedGpu(place / "gpu") as gpu:
            env = os.environ | gpu.env
            with Leased(place / "leased", place / "run", env, extra) as leased:
                run_jobs(leased, quantum_s)
        file.write_bytes((place / "record").read_bytes())
        shutil.rmtree(place)
        print(f"{file}: {file.stat().st_size} bytes")


if __name__ == "__main__":
    main()
