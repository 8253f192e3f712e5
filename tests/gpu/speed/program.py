"""A program of check_speed: it sets itself up, and times a segment for each line that it reads.

`python -m tests.gpu.speed.program NAME [--no-device]`. It prints a line of JSON when it is
ready, with the seconds of a step. Each line that it then reads is a number of steps: it does a
few, untimed, then those, and prints what they took by the host's clock and by the device's. For
`count STEPS` it prints how often a step calls each function of the driver. At the end of its
input it prints whether the interposer was in it. --no-device: on the CPU, timed by the host
alone, to see that a program is sound where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

from tests.gpu.speed import counting, other_programs, torch_programs
from tests.gpu.speed.device_timer import DeviceTimer
from tests.gpu.workloads import Workload, is_interposed

WARM_S = 1.0
LEAD_IN = 10  # of so many steps one more comes first, untimed

# On other streams than the default one: the event at the end is recorded when all is done.
OTHER_STREAMS = {"jax_jit", "cupy"}

PROGRAMS: dict[str, Callable[[], Workload]] = torch_programs.PROGRAMS | other_programs.PROGRAMS


def warm_up(work: Workload) -> float:
    """Run until nothing is new any more; the seconds of a step."""
    for _ in range(3):  # compiled, captured, allocated
        work.step()
        work.wait()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < WARM_S:
        for _ in range(4):
            work.step()
        work.wait()
        done += 4
    return (time.perf_counter() - began) / done


def segment(
    work: Workload, steps: int, timer: DeviceTimer | None, wait_first: bool
) -> dict[str, Any]:
    """So many steps, from an idle device to an idle device. wait_first: before the last event."""
    for _ in range(max(1, steps // LEAD_IN)):
        work.step()
    work.wait()
    if timer:
        timer.begin()
    began = time.perf_counter()
    for _ in range(steps):
        work.step()
    if wait_first:
        work.wait()
    if timer:
        timer.end()
    work.wait()
    host = time.perf_counter() - began
    return {"steps": steps, "host_s": host, "device_s": timer.seconds() if timer else None}


def calls_of_step(work: Workload, steps: int) -> dict[str, Any]:
    """Counted over so many steps, from an idle device to an idle device."""

    def run() -> None:
        for _ in range(steps):
            work.step()
        work.wait()

    work.wait()
    try:
        found = counting.count(run)
    except counting.CannotCount as fault:
        return {"calls": None, "why": str(fault)}
    return {"calls": {name: calls / steps for name, calls in found.items()}}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=PROGRAMS)
    parser.add_argument("--no-device", action="store_true", help="on the CPU")
    chosen = parser.parse_args()
    torch_programs.DEVICE = "cpu" if chosen.no_device else "cuda"
    work = PROGRAMS[chosen.name]()
    step_s = warm_up(work)
    timer = None if chosen.no_device else DeviceTimer()
    print(json.dumps({"ready": True, "step_s": step_s}), flush=True)
    for line in sys.stdin:
        word, _, steps = line.rpartition(" ")
        if word:
            answer = calls_of_step(work, int(steps))
        else:
            answer = segment(work, int(steps), timer, chosen.name in OTHER_STREAMS)
        print(json.dumps(answer), flush=True)
    print(json.dumps({"interposed": is_interposed()} | work.about), flush=True)


if __name__ == "__main__":
    main()
