"""What parking a job takes: `make bench NAME=park` writes build/bench/park.json.

A job with memory:swap alone on the (emulated) device writes all of `bytes`, is parked, and is
woken by a launch, `cycles` times. `park_s`: from gpu-leasectl's question until no more than a
hundredth of the data is on the device; `left_share`: what is still there when the daemon says
that all has left, the most of all cycles; `link_limit_s`: what the bytes take at the model's
speed in one direction; `wake_s`: a small launch of the parked job, as the job sees it.
`clean_park_s`: a park right behind that launch, which has changed nothing; whether the bytes
are copied again is up to the interposer. `data_ok`: the job found in every cycle what it had
written. Times are medians.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.bench import write
from tests.emugpu.server import EmulatedGpu, model_of
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support import tenant
from tests.support.programs import SET_UP, line

ROOT = Path(__file__).resolve().parents[2]
MODEL = "emu-h200-small"
MIB = 1 << 20
SIZE = 200 * MIB  # of 256
CYCLES = 7
OPTIONS = "tq:1,memory:swap"

# Each line of input is what it does, each line of output what came of it.
JOB = (
    SET_UP
    + f"""
import time
say("started"); sys.stdin.readline()
p = ok(d.cuMemAlloc({SIZE})); host = bytearray({SIZE}); written = 0
def write():
    global written
    written += 1
    ok(d.cuMemsetD8(p, written, {SIZE})); ok(d.cuCtxSynchronize())
    return "written"
def wake():
    begin = time.monotonic()
    ok(spin(1000)); ok(d.cuCtxSynchronize())
    return time.monotonic() - begin
def check():
    ok(d.cuMemcpyDtoH(host, p, {SIZE}))
    return host.count(written) == {SIZE}
say(write())
for what in sys.stdin:
    say({{"write": write, "wake": wake, "check": check}}[what.strip()]())
"""
)


class Parked:
    """The job, its device and its daemon."""

    def __init__(self, gpu: EmulatedGpu, leased: Leased):
        self.gpu = gpu
        self.leased = leased
        self.process = subprocess.Popen(
            tenant.command(leased.admin_socket, 1, OPTIONS, sys.executable, "-c", JOB),
            cwd=ROOT,
            env=leased.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert line(self.process) == "started"
        self.empty = self._free()
        assert self.do("") == "written"

    def _free(self) -> int:
        return int(self.gpu.stats()["devices"][0]["free"])

    def left(self) -> float:
        """The share of its data that is on the device."""
        return max(0, self.empty - self._free()) / SIZE

    def do(self, what: str) -> str:
        assert self.process.stdin is not None
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()
        return line(self.process)

    def has_left(self) -> bool:
        (job,) = ask(self.leased.admin_socket, {"op": "status"})["tenants"]
        return job["state"] == "parked" and not any(job["resident_bytes"].values())

    def park(self) -> float:
        """Seconds until its data is off the device."""
        begin = time.monotonic()
        ask(self.leased.run_dir / "tenant.sock", {"op": "park", "job_id": 1})
        spin_until("the data to leave", lambda: self.left() <= 0.01)
        return time.monotonic() - begin


def spin_until(what: str, condition: Callable[[], bool]) -> None:
    wait_until(what, condition, step=0.005)


def measure(work: Path) -> dict[str, Any]:
    times: dict[str, list[float]] = {"park_s": [], "clean_park_s": [], "wake_s": []}
    left, right = 0.0, True
    with (
        EmulatedGpu(work / "gpu", MODEL) as gpu,
        Leased(work / "leased", work / "run", os.environ | gpu.env) as leased,
    ):
        job = Parked(gpu, leased)
        for _ in range(CYCLES):
            assert job.do("write") == "written"
            times["park_s"].append(job.park())
            spin_until("the daemon to know", job.has_left)
            left = max(left, job.left())
            times["wake_s"].append(float(job.do("wake")))
            times["clean_park_s"].append(job.park())
            right &= job.do("check") == "True"
        job.process.communicate()
    return {
        "bytes": SIZE,
        "left_share": round(left, 5),
        "link_limit_s": round(SIZE / MIB / model_of(MODEL)["link_mib_s"], 4),
        **{name: round(statistics.median(found), 4) for name, found in times.items()},
        "cycles": CYCLES,
        "data_ok": right,
    }


if __name__ == "__main__":
    print(json.dumps(write("park", measure), indent=1))
