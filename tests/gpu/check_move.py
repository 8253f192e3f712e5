"""Jobs move between two real GPUs while they work, and compute what they do without that.

`python -m tests.gpu.check_move [--only NAMES] [--mib N] [--moves N]` on a machine with two GPUs of
one kind, as root. Programs run bare, and as a job that is moved to the other GPU and back while it
works; the digests of all their memory, or of all weights, have to be equal. Prints a line a check
and a table; writes move.json in $OUT or build/bench. Exit status 1 if a check failed. Checks:

    probe     what the driver answers (probe_move, the scenarios of most worth)
    driver    kernels, a graph, events, and memory of cuMemAlloc: also the longest pause
    torch     a training of PyTorch (ResNet-152, with cuDNN and cuBLAS)
    stops     a job that has moved and come back takes turns with another one, by kernels of
              seconds: they are stopped in mid-kernel, and their memory moves, as before
    idle      `limits.move_idle`: two jobs that do not fit together take turns, and the second GPU
              becomes free: how soon the daemon has moved one, and both work at once

To try it on the emulated GPU: `python -m tests.gpu.emulated --model emu-h200-medium --devices 2
tests.gpu.check_move --only driver --mib 64 --turns 200`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from leased.api.client import ask
from leased.base.errors import Refused
from tests.gpu.check_slices import change, change_s, filled, resident, stops_of
from tests.gpu.check_swap import swapping
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import (
    ROOT,
    Job,
    JobFailed,
    Sharing,
    framework_python,
    on_gpu,
    sharing,
    show,
    stopping,
    touch_host_memory,
    write_report,
)

LATE_S = 0.5  # into its work a job is moved
LONG_S, KERNELS_EACH = 2.5, 4  # a kernel, which is more than a turn
SHORT_S, BOTH_S, GUEST_S, MOST_S = 0.2, 20.0, 25.0, 5.0


def environment(chosen: argparse.Namespace) -> dict[str, str]:
    return {"CUDA_VISIBLE_DEVICES": chosen.visible} if chosen.visible else {}


class Steps:
    """What has been found so far; printed and written at once, for whoever cuts the run off."""

    def __init__(self, seconds: float):
        self._began, self._seconds = time.monotonic(), seconds
        self.found: list[Any] = []

    def add(self, name: str, value: Any) -> None:
        at = round(time.monotonic() - self._began, 2)
        self.found.append([at, name, value])
        show(f"{at:7.2f} s  {name}", value)
        write_report("move-steps", self.found)

    def left(self) -> float:
        """Seconds. JobFailed: there are none."""
        left = self._began + self._seconds - time.monotonic()
        if left <= 0:
            raise JobFailed(f"{self._seconds:g} s are over; see --seconds")
        return left


def answers(
    job: Job, orders: Sequence[str], then: Mapping[int, Callable[[], None]], steps: Steps
) -> list[dict[str, Any]]:
    """What the program prints for each order. then: what is done while it works on the n-th."""
    job.wait_ready(steps.left())
    steps.add(job.name, "ready")
    after, found = len("ready\n"), []
    for n, order in enumerate(orders):
        job.say(order)
        if n in then:
            time.sleep(LATE_S)
            then[n]()
        line, after = job.next_line(after, steps.left())
        found.append(json.loads(line))
        steps.add(job.name, found[-1])
    return found


def move(share: Sharing, job: Job, gpu: int, moves: list[dict[str, Any]], steps: Steps) -> None:
    """Move the job, and note how that went."""
    socket = share.admin.with_name("tenant.sock")
    try:
        answer = ask(socket, {"op": "move", "job_id": job.number, "gpu": str(gpu)})
        while answer["state"] == "moving" and steps.left():
            time.sleep(0.01)
            answer = ask(socket, {"op": "moved", "job_id": job.number})
    except Refused as fault:
        answer = {"state": "refused", "why": str(fault)}
    moves.append(answer)
    steps.add(f"{job.name} to GPU {gpu}", answer)


def check_program(
    name: str, command: Sequence[str], order: str, chosen: argparse.Namespace
) -> Result:
    orders, moves = [order] * (chosen.moves + 1), []  # type: tuple[list[str], list[dict[str, Any]]]
    steps: Steps = chosen.steps_found
    bare = Job.start(f"{name}, bare", command, environment(chosen))
    with stopping(bare):
        right = [answer["digest"] for answer in answers(bare, orders, {}, steps)]
    with swapping(chosen.cap) as share:
        job = share.tenant(name, "memory:swap", command, environment(chosen))
        with stopping(job):
            each = {
                n: partial(move, share, job, 1 - n % 2, moves, steps) for n in range(chosen.moves)
            }
            told = answers(job, orders, each, steps)
            steps.add(f"{name}, its interposer", job.said()[-1500:])
    moved = [answer for answer in moves if answer["state"] == "moved"]
    equal = [answer["digest"] for answer in told] == right
    dead = [answer["dead_s"] for answer in moved]
    pauses = [a.get("pause_s", a.get("longest_s")) for a in told[: chosen.moves]]
    why = [answer["why"] for answer in moves if answer["state"] != "moved"]
    return {
        "good": equal and len(moved) == chosen.moves,
        "summary": f"digests {'equal' if equal else 'DIFFER'}, {len(moved)} of {chosen.moves} "
        f"moves, dead {dead} s, the driver's part {[a['driver_s'] for a in moved]} s, "
        f"pauses {pauses} s {'; '.join(why)}"[:400],
        "moves": moves,
        "told": told,
    }


def check_driver(chosen: argparse.Namespace) -> Result:
    touch_host_memory(chosen.mib << 20)
    command = framework_python("-m", "tests.gpu.move_loop", str(chosen.mib))
    return check_program("driver", command, str(chosen.turns), chosen)


def check_torch(chosen: argparse.Namespace) -> Result:
    command = framework_python("-m", "tests.gpu.training", "--batch", str(chosen.batch), "--parts")
    return check_program("torch", command, f"1 0 {chosen.steps}", chosen)


def check_stops(chosen: argparse.Namespace) -> Result:
    command, moves = resident(chosen.stops_mib), []  # type: tuple[list[str], list[dict[str, Any]]]
    steps: Steps = chosen.steps_found
    with swapping(chosen.stops_mib * 1.5 / 1024) as share:
        jobs = [
            share.tenant(f"job {n}", "memory:swap,lock:on,tq:1", command, environment(chosen))
            for n in range(2)
        ]
        with filled(jobs, chosen.stops_mib) as both:
            rounds = max(1, round(LONG_S / change_s(both[0])))
            for gpu in (1, 0):
                move(share, jobs[0], gpu, moves, steps)
            before = stops_of(jobs[0])
            took = [round(seconds, 1) for seconds in change(both, rounds, KERNELS_EACH)]
            stops = stops_of(jobs[0]) - before
            steps.add("the interposer of job 0", jobs[0].said()[-4000:])
            wrong = sum(one.do("check")["wrong"] for one in both)
    moved = sum(answer["state"] == "moved" for answer in moves)
    return {
        "good": moved == len(moves) and stops > 0 and wrong == 0,
        "summary": f"{moved} of {len(moves)} moves, then kernels of {LONG_S} s by turns took "
        f"{took} s; {stops} stops of the one that moved, {wrong} pieces wrong",
        "moves": moves,
    }


def gpus_of(share: Sharing, jobs: Sequence[Job]) -> set[str]:
    """The UUIDs of the GPUs that have memory of the jobs."""
    answer, numbers = ask(share.admin, {"op": "status"}), {job.number for job in jobs}
    told = [t["resident_bytes"] for t in answer["tenants"] if t["job_id"] in numbers]
    return {uuid for one in told for uuid, size in one.items() if size}


def moves_of(share: Sharing, jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """How the jobs were moved by the daemon."""
    socket, found = share.admin.with_name("tenant.sock"), []
    for job in jobs:
        with suppress(Refused):
            found.append(ask(socket, {"op": "moved", "job_id": job.number}))
    return found


def check_idle(chosen: argparse.Namespace) -> Result:
    """Kernels of both jobs are short, so each waits for the other again and again."""
    mib, limits = chosen.idle_mib, 'swap_host = "4096GiB"\nmove_idle = true\n'
    command, steps = resident(mib), chosen.steps_found
    touch_host_memory(2 * mib << 20)
    with sharing(f"{mib * 1.5 / 1024:g}GiB", limits) as share:
        guest = share.tenant("guest", "memory:swap", command, on_gpu(1), "1")
        env = on_gpu(0) | {"GPU_LEASE_DEBUG": "1"}
        jobs = [share.tenant(f"job {n}", "memory:swap,tq:1", command, env) for n in range(2)]
        with filled([*jobs, guest], mib) as (one, two, other):
            rounds = max(1, round(SHORT_S / change_s(other)))
            for each, seconds in ((one, BOTH_S), (two, BOTH_S), (other, GUEST_S)):
                for _ in range(round(seconds / SHORT_S)):
                    each.tell(f"change {rounds}")
            for _ in range(round(GUEST_S / SHORT_S)):
                other.hear()
            guest.stop()
            ask(share.admin, {"op": "job_end", "job_id": guest.number})  # as its epilog says
            free = time.monotonic()
            while len(gpus_of(share, jobs)) < 2 and steps.left():
                time.sleep(0.05)
            moved_s = time.monotonic() - free
            steps.add("moved", moves := moves_of(share, jobs))
            for job in jobs:
                steps.add(f"the interposer of {job.number}", job.said()[-4000:])
            kernels = round(BOTH_S / SHORT_S)
            took = [each.hear()["seconds"] for each in (one, two) for _ in range(kernels)]
            last = change([one, two], rounds, 1)
            wrong = sum(each.do("check")["wrong"] for each in (one, two))
    return {
        "good": moved_s <= MOST_S and wrong == 0 and max(last) < 2 * SHORT_S,
        "summary": f"two jobs of {mib / 1024:g} GiB on two GPUs {moved_s:.1f} s after the second "
        f"was free (at most {MOST_S:g}); a kernel of {SHORT_S} s took {max(took):.1f} s at most, "
        f"at the end {max(last):.2f} s; {wrong} pieces wrong; {json.dumps(moves)}",
        "moves": moves,
    }


def check_probe(chosen: argparse.Namespace) -> Result:
    command = [sys.executable, "-m", "tests.gpu.probe_move", "--seconds", str(chosen.probe_s)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print(done.stdout + done.stderr[-2000:], flush=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    first: list[Any] = next((s["steps"] for s in lines if s["scenario"].startswith("parked")), [])
    checks = [step[1] for step in first if step[0] == "check"]
    crossed = len({check.get("gpu") for check in checks}) == 2
    right = [check.get("wrong") for check in checks] == [0, 0]
    return {"good": crossed and right, "summary": json.dumps(first)[:300], "lines": lines}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=["driver", "torch", "stops", "probe"])
    parser.add_argument("--cap", type=float, default=70.0, help="GiB of each device")
    parser.add_argument("--mib", type=int, default=8192, help="memory of the program `driver`")
    parser.add_argument("--turns", type=int, default=300, help="of its work beside each move")
    parser.add_argument("--batch", type=int, default=200, help="of the training")
    parser.add_argument("--steps", type=int, default=12, help="of the training beside each move")
    parser.add_argument("--moves", type=int, default=2)
    parser.add_argument("--stops-mib", type=int, default=4096, help="memory of each job of `stops`")
    parser.add_argument("--idle-mib", type=int, default=40960, help="memory of each job of `idle`")
    parser.add_argument("--visible", default="0", help='CUDA_VISIBLE_DEVICES; "": not set')
    parser.add_argument("--probe-s", type=float, default=20.0, help="of the probe")
    parser.add_argument("--seconds", type=float, default=240.0, help="of all but the probe")
    chosen = parser.parse_args()
    chosen.steps_found = Steps(chosen.seconds)
    checks = {
        "driver": check_driver,
        "torch": check_torch,
        "stops": check_stops,
        "probe": check_probe,
        "idle": check_idle,
    }
    return run_checks("move", {n: partial(c, chosen) for n, c in checks.items()}, chosen.only)


if __name__ == "__main__":
    raise SystemExit(main())
