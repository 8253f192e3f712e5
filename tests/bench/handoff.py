"""What a handoff that moves memory takes: `make bench NAME=handoff`, build/bench/handoff.json.

Two jobs of which only one fits the (emulated) device work by turns with
memory:swap. `seconds`: from the last work of the one to the first work of the
other, the median over the handoffs of the run; `bytes_out`, `bytes_in`: what
moved in one, of which `link_limit_s` follows: the slower direction, at the
model's speed with both directions in use. Beside it, in the same run and
without the interposer, what it takes to bring in as many bytes of managed
memory, while another process' make room: by faults and by prefetch.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from tests.bench import write
from tests.emugpu.server import EmulatedGpu, model_of
from tests.slurm.leased import Leased
from tests.support import tenant
from tests.support.programs import SET_UP, line, tell
from tests.support.together import pairwise, zip_strict

ROOT = Path(__file__).resolve().parents[2]
MODEL = "emu-h200-small"
MIB = 1 << 20
SIZE = 220 * MIB  # of 256
HANDOFFS = 9
BEFORE = 8  # handoffs in which the interposer finds that nothing stays as it was
LOOK_S = 0.2  # between looks at how far they are, which cost a processor
OPTIONS = "tq:100ms,memory:swap"

# Kernels that wait for each other, so that the device is busy for as long as it is held. All
# pieces of the memory change before, as a training's do: what is only read is not copied out.
SWAPS = (
    SET_UP
    + f"""
import select
p = ok(d.cuMemAlloc({SIZE}))
ok(d.cuMemsetD32(p, 1, {SIZE // 4})); ok(d.cuCtxSynchronize()); say("ready")
turn = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    turn += 1
    for at in range(0, {SIZE}, {2 * MIB}):
        ok(d.cuMemsetD32Async(int(p) + at, turn, 1, 0))
    for _ in range(4):
        ok(spin(2_000_000))
    ok(d.cuCtxSynchronize())
"""
)
# How long a sweep over all of it takes when another process has pushed it out, and when not.
MANAGED = (
    SET_UP
    + f"""
import time
n = {SIZE} // 4
p = ok(d.cuMemAllocManaged({SIZE}, 1))
stream = ok(d.cuStreamCreate(1))
def sweep():
    values = ((int(p), n, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32))
    begin = time.monotonic()
    ok(d.cuLaunchKernel(kernel["fill"], 1024, 1, 1, 256, 1, 1, 0, stream, values, 0))
    ok(d.cuStreamSynchronize(stream))
    return time.monotonic() - begin
sweep(); say("ready")
for how in sys.stdin:
    begin = time.monotonic()
    if how == "prefetch\\n":
        place = d.CUmemLocation(); place.id = 0
        place.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        ok(d.cuMemPrefetchAsync(p, {SIZE}, place, 0, stream)); ok(d.cuStreamSynchronize(stream))
    sweep()
    cold = time.monotonic() - begin
    say(cold - sweep())
"""
)


def python(code: str, env: dict[str, str], *before: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*before, sys.executable, "-c", code],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def gaps(gpu: EmulatedGpu) -> list[float]:
    """Seconds from the last work of one process to the first of the next, for each change."""
    slices = sorted((start, end, pid) for _, pid, start, end in gpu.trace())
    return [(b[0] - a[1]) / 1e9 for a, b in pairwise(slices) if a[2] != b[2]]


def moved(gpu: EmulatedGpu) -> tuple[int, int]:
    device = gpu.stats()["devices"][0]
    return int(device["out_bytes"]), int(device["in_bytes"])


def swap(work: Path) -> tuple[float, float, float]:
    """(seconds, bytes out, bytes in) of a handoff."""
    with (
        EmulatedGpu(work / "gpu", MODEL, trace=True) as gpu,
        Leased(work / "leased", work / "run", os.environ | gpu.env) as leased,
    ):
        jobs = [
            python(SWAPS, leased.env, *tenant.command(leased.admin_socket, number, OPTIONS))
            for number in (1, 2)
        ]
        for job in jobs:
            assert line(job) == "ready"
        begin = len(gaps(gpu)) + BEFORE
        while len(gaps(gpu)) < begin:
            time.sleep(LOOK_S)
        begin, before = len(gaps(gpu)), moved(gpu)
        while len(gaps(gpu)) < begin + HANDOFFS:
            time.sleep(LOOK_S)
        found, after = gaps(gpu)[begin:], moved(gpu)
        for job in jobs:
            tell(job)
            job.wait()
    out, into = ((b - a) / len(found) for a, b in zip_strict(before, after))
    return statistics.median(found), out, into


def managed(work: Path) -> dict[str, float]:
    """Seconds to bring in what another process pushed out, by how it comes in."""
    with EmulatedGpu(work / "managed", MODEL) as gpu:
        pair = [python(MANAGED, os.environ | gpu.env) for _ in range(2)]
        for process in pair:
            assert line(process) == "ready"
        found: dict[str, list[float]] = {"fault": [], "prefetch": []}
        for _ in range(4):
            # By turns: what one brings in pushes the other out.
            for process, (how, times) in zip_strict(pair, found.items()):
                assert process.stdin is not None
                process.stdin.write(how + "\n")
                process.stdin.flush()
                times.append(float(line(process)))
        for process in pair:
            process.communicate()
    return {how: statistics.median(times) for how, times in found.items()}


def link_bytes_s() -> float:
    """One direction's speed by the model while both are in use."""
    model = model_of(MODEL)
    return model["link_mib_s"] * MIB * model["duplex"]


def run(work: Path) -> dict[str, float]:
    seconds, out, into = swap(work)
    slow = managed(work)
    limit = max(out, into) / link_bytes_s()
    return {
        "bytes_out": round(out),
        "bytes_in": round(into),
        "seconds": round(seconds, 4),
        "link_limit_s": round(limit, 4),
        "ratio_to_limit": round(seconds / limit, 3),
        "managed_fault_s": round(slow["fault"], 4),
        "managed_prefetch_s": round(slow["prefetch"], 4),
    }


def main() -> None:
    print("On the emulated GPU:", json.dumps(write("handoff", run)))


if __name__ == "__main__":
    main()
