"""What the GPU's own time slices do for jobs side by side: `make bench NAME=slices`.

On a model whose kernels take four times as long as an H200's; times are given as on the card, in
ms, and go to build/bench/slices.json. The groups' slices are set as a program sets its own: by a
library that is loaded before it.

`service`: 3.1 ms of work every 20 ms on average, half to one and a half times that, whether the
last one has ended or not. Alone; beside a job that waits for each of its kernels of 2.2 ms, with
the slices that the driver makes and with SERVICE_US and BATCH_US; with these beside kernels of
300 ms. `batch_of_leftover`: what the job beside it gets, of what it gets with the driver's
slices. `saturating_of_alone`: two jobs with kernels of 2.2 ms, eight of which wait, with slices
of SATURATING_US, together, of one of them alone. `shares`: the same with slices in the proportion
that is asked for. `handoff_under_long_kernel_ms`: from the stop of a job in a kernel of 10 s
until a job that was stopped has run a kernel. `moved_under_stop`: memory of a stopped kernel that
left the device and came back, while other memory filled the device.
"""

from __future__ import annotations

import configparser
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import write
from tests.emugpu.engine.test_groups import FILLS, GROUPS, MOVED_MIB, MOVES
from tests.emugpu.programs import finish, go_on, line, program, run
from tests.emugpu.server import BUILD, EmulatedGpu

MODEL = "emu-h200-slow"
MODELS = Path(__file__).resolve().parents[1] / "emugpu" / "models"
CARD_SLICE_US = 2048  # what time_slice_us of a model stands for

SERVICE_MS, EVERY_MS, REQUESTS = 3.1, 20.0, 250
BATCH_MS, LONG_MS, SATURATING_MS = 2.2, 300.0, 2.2
SERVICE_US, BATCH_US, SATURATING_US = 20000, 50, 4000
SHARES = (0.1, 0.9)
SHARES_US = 10000  # the slices of all jobs with a share together
QUEUED, SATURATED_S, HANDOFFS = 8, 4.0, 9

HOLDER = "setup(); ok(launch('spin', 10**13)); say('up')\n"
NEXT = "setup(); compute().stop(); ok(launch('spin', 1)); say('up')\n"
BY_TURNS = f"""
for _ in range({HANDOFFS}):
    wait(); compute().stop(); say("off"); wait(); compute().start()
"""
WAITS = f"""
for _ in range({HANDOFFS}):
    wait(); compute().start(); ok(d.cuCtxSynchronize()); say("ran")
    compute().stop(); ok(launch("spin", 1)); say("off")
"""


def scale() -> float:
    """How many times as long as on the card a kernel takes."""
    text = "[model]\n" + (MODELS / f"{MODEL}.ini").read_text()
    model = configparser.ConfigParser()
    model.read_string(text)
    return model.getfloat("model", "time_slice_us") / CARD_SLICE_US


SCALE = scale()


class Waits(NamedTuple):
    """What a service's requests took, in ms of the card."""

    p50: float
    p99: float


class Beside(NamedTuple):
    """A service, and how many kernels a second the job beside it has run."""

    service: Waits
    batch: float


def start(gpu: EmulatedGpu, slice_us: int, *arguments: object) -> subprocess.Popen[str]:
    """A program of turns.c that is ready. slice_us: of its compute group; 0: the driver's own."""
    own = {"EMUGPU_SLICE_US": str(slice_us), "LD_PRELOAD": str(BUILD / "libemugpu_groups.so")}
    process = subprocess.Popen(
        [str(BUILD / "turns"), *map(str, arguments)],
        env=os.environ | gpu.env | (own if slice_us else {}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert line(process) == "ready"
    return process


def batch(gpu: EmulatedGpu, slice_us: int, kernel_ms: float, depth: int) -> subprocess.Popen[str]:
    return start(gpu, slice_us, "batch", kernel_ms * 1000 * SCALE, depth)


def rate(job: subprocess.Popen[str]) -> float:
    """Ends a job; how many kernels a second it ran, as on the card."""
    go_on(job)
    kernels, us = map(float, finish(job).split())
    return kernels / us * 1e6 * SCALE


def served(gpu: EmulatedGpu, slice_us: int) -> Waits:
    one = start(
        gpu, slice_us, "service", SERVICE_MS * 1000 * SCALE, EVERY_MS * 1000 * SCALE, REQUESTS
    )
    go_on(one)
    waits = sorted(float(us) / 1000 / SCALE for us in finish(one).split())
    return Waits(statistics.median(waits), waits[int(len(waits) * 0.99)])


def beside(gpu: EmulatedGpu, slices: tuple[int, int], kernel_ms: float) -> Beside:
    """A service beside a job that waits for each of its kernels. slices: of the two of them."""
    job = batch(gpu, slices[1], kernel_ms, 1)
    go_on(job)
    service = served(gpu, slices[0])
    return Beside(service, rate(job))


def saturated(gpu: EmulatedGpu, slices: Sequence[int]) -> list[float]:
    """Jobs that each have kernels queued all the time: how many a second each has run."""
    jobs = [batch(gpu, us, SATURATING_MS, QUEUED) for us in slices]
    for job in jobs:
        go_on(job)
    time.sleep(SATURATED_S)
    return [rate(job) for job in jobs]


def handoff_ms(gpu: EmulatedGpu) -> float:
    took = []
    with (
        program(gpu, GROUPS + HOLDER + BY_TURNS) as holder,
        program(gpu, GROUPS + NEXT + WAITS) as next_one,
    ):
        assert line(holder) == line(next_one) == "up"
        for _ in range(HANDOFFS):
            begin = time.monotonic()
            go_on(holder)
            assert line(holder) == "off"
            go_on(next_one)
            assert line(next_one) == "ran"
            took.append((time.monotonic() - begin) * 1000 / SCALE)
            assert line(next_one) == "off"
            go_on(holder)
    return statistics.median(took)


def moved(gpu: EmulatedGpu) -> dict[str, int]:
    with program(gpu, GROUPS + MOVES) as one:
        assert line(one) == "away"
        run(gpu, FILLS + "ok(d.cuCtxSynchronize())")
        go_on(one)
        return {"bytes": MOVED_MIB << 20, "wrong": int(finish(one))}


def measure(work: Path) -> dict[str, Any]:
    with EmulatedGpu(work / "gpu", MODEL) as gpu:
        alone = served(gpu, 0)
        made = beside(gpu, (0, 0), BATCH_MS)
        short = beside(gpu, (SERVICE_US, BATCH_US), BATCH_MS)
        long = beside(gpu, (SERVICE_US, BATCH_US), LONG_MS)
        one = saturated(gpu, [SATURATING_US])
        two = saturated(gpu, [SATURATING_US] * 2)
        parts = saturated(gpu, [round(SHARES_US * share) for share in SHARES])
        return {
            "service": {
                "alone_p50_ms": alone.p50,
                "alone_p99_ms": alone.p99,
                "p50_ms": short.service.p50,
                "p99_ms": short.service.p99,
                "batch_of_leftover": short.batch / made.batch,
                "default_p50_ms": made.service.p50,
                "default_p99_ms": made.service.p99,
                "long_kernels_p99_ms": long.service.p99,
            },
            "saturating_of_alone": sum(two) / one[0],
            "shares": {"asked": SHARES, "got": [part / sum(parts) for part in parts]},
            "handoff_under_long_kernel_ms": handoff_ms(gpu),
            "moved_under_stop": moved(gpu),
        }


def urgent() -> None:
    """Ahead of what else the machine does, where that is allowed: a few ms are measured."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("slices: what else this machine does counts, since it allows no such priority")


def main() -> int:
    urgent()
    for name, value in write("slices", measure).items():
        print(f"{name}: {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
