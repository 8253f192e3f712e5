"""Two jobs that each fill the GPU, under lock:auto: are turns tried, fair, and faster?

`python -m tests.gpu.check_turns [--only reach,pair,again,shapes]` on a machine with a GPU. pair:
two jobs whose memory fits together, beside the same two bare (the driver's time slices).
again: a second such pair in the same daemon, a minute later. reach: one job alone, whose rate
is the most that turns can reach; two bare jobs three times, by turns with it; the pair; and
from these what a handoff costs, and what ratio is possible on this machine. shapes: the same of
jobs that submit otherwise (--shapes: MiB of a sweep, and how many are queued). Writes turns.json.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.gpu.build import build
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import ONE_GPU, Job, Sharing, finish_all, run_together, sharing, stopping

WINDOW_S = 5
SLICES_S, FIRST_S = 16, 20
SHORT_S = 8  # of a run beside others by turns
STEADY_S = 20  # from then on turns have been tried and are in force
MEMORY = "12GiB"
ROOM = 2.2  # times the memory of a job, for two and what the driver takes
SHAPES = "4096:1,4096:64,256:1,256:4,16384:4"


@dataclass(frozen=True)
class Shape:
    """How a job fills the GPU: MiB of a sweep, and how many sweeps it has queued."""

    mib: int = 4096
    queued: int = 4

    def command(self, seconds: float) -> list[str]:
        return [str(build("stream")), str(self.mib), str(seconds), str(self.queued), "ready"]


USUAL = Shape()


def bare(jobs: int, seconds: float, shape: Shape = USUAL) -> list[list[int]]:
    """Jobs of no daemon, as the driver lets them run."""
    command = shape.command(seconds)
    started = [Job.start(f"stream {n}, bare", command, ONE_GPU) for n in range(jobs)]
    return windows(run_together(started))


def tenants(share: Sharing, options: str, seconds: float, shape: Shape = USUAL) -> list[Job]:
    command = shape.command(seconds)
    return [share.tenant(f"stream {n} of two", options, command) for n in range(2)]


def by_turns(share: Sharing, options: str, seconds: float) -> list[list[int]]:
    """Two jobs of the daemon."""
    return windows(run_together(tenants(share, options, seconds)))


def handoffs(share: Sharing, jobs: Sequence[Job]) -> int:
    return sum(int(share.usage(job)["handoffs"]) for job in jobs)


def by_counted_turns(
    share: Sharing, options: str, seconds: float, shape: Shape
) -> tuple[list[list[int]], float]:
    """Two jobs of the daemon; and how many handoffs a second there are in the steady state."""
    jobs = tenants(share, options, seconds, shape)
    with stopping(*jobs):
        for job in jobs:
            job.wait_ready()
        for job in jobs:
            job.go()
        time.sleep(STEADY_S)
        began, before = time.monotonic(), handoffs(share, jobs)
        time.sleep(max(1.0, seconds - STEADY_S - 2))
        per_s = (handoffs(share, jobs) - before) / (time.monotonic() - began)
        return windows(finish_all(jobs)), per_s


def windows(results: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Sweeps of each job in every second that lies whole in the run."""
    first = int(max(result["from"] for result in results)) + 1
    last = int(min(result["to"] for result in results))
    return [[r["by_second"].get(str(at), 0) for r in results] for at in range(first, last)]


def rate(seconds: Sequence[Sequence[int]]) -> float:
    """Sweeps a second of all together."""
    return float(sum(sum(both) for both in seconds)) / len(seconds)


def most_apart(seconds: Sequence[Sequence[int]]) -> float:
    """How far the jobs are from each other in the worst window: 0 when both got as much."""
    spans = [seconds[n : n + WINDOW_S] for n in range(len(seconds) - WINDOW_S + 1)]
    sums: list[list[int]] = [[sum(one) for one in zip(*span, strict=True)] for span in spans]
    return max(1.0 - min(both) / max(*both, 1) for both in sums)


def judge(slices: list[list[int]], turns: list[list[int]]) -> Result:
    """turns: the run under lock:auto; judged in its steady state."""
    steady = turns[STEADY_S:]
    driver, ours, worst = rate(slices), rate(steady), most_apart(steady)
    return {
        "good": ours / driver >= 1.12 and worst <= 0.05,
        "summary": f"time slices {driver:.0f}/s, lock:auto {ours:.0f}/s "
        f"({ours / driver:.3f}), at most {worst:.3f} apart in any {WINDOW_S} s",
        "slices": slices,
        "turns": turns,
    }


def check_pair(seconds: float, options: str) -> Result:
    slices = bare(2, SLICES_S)
    with sharing(MEMORY) as share:
        turns = by_turns(share, options, seconds)
        why = share.devices()[0]["why"]
    return judge(slices, turns) | {"why": why}


def check_again(seconds: float, options: str) -> Result:
    """What the first pair taught must not keep the second from its own trial."""
    slices = bare(2, SLICES_S)
    with sharing(MEMORY) as share:
        by_turns(share, options, FIRST_S)
        turns = by_turns(share, options, seconds)
    return judge(slices, turns)


def check_reach(
    seconds: float, options: str, shape: Shape = USUAL, rounds: int = 3, memory: str = MEMORY
) -> Result:
    """What turns make of what one job alone does, and what they could at best."""
    alone, slices = [], []
    for _ in range(rounds):
        alone.append(rate(bare(1, SHORT_S, shape)))
        slices.append(bare(2, SHORT_S, shape))
    with sharing(memory) as share:
        turns, per_s = by_counted_turns(share, options, seconds, shape)
    alone.append(rate(bare(1, SHORT_S, shape)))
    judged = judge([second for run in slices for second in run], turns)
    best, ours = statistics.median(alone), rate(turns[STEADY_S:])
    driver = statistics.median(map(rate, slices))
    lost_ms = (1 - ours / best) / per_s * 1e3 if per_s else None
    print(f"alone {alone}, time slices {[rate(run) for run in slices]} sweeps/s", flush=True)
    return judged | {
        "summary": f"{judged['summary']}; alone {best:.0f}/s, so {best / driver:.3f} at best; "
        f"{per_s:.1f} handoffs/s, "
        + ("no loss known" if lost_ms is None else f"{lost_ms:.2f} ms")
        + " lost by each",
        "alone_s": alone,
        "slices_s": [rate(run) for run in slices],
        "handoffs_s": per_s,
        "lost_ms": lost_ms,
        "ratio": ours / driver,
        "possible": best / driver,
    }


def check_shapes(seconds: float, options: str, shapes: Sequence[Shape]) -> Result:
    """Does it depend on how the jobs submit what turns gain?"""
    found = {}
    for shape in shapes:
        gib = shape.mib * ROOM / 1024 + 4
        result = check_reach(seconds, options, shape, rounds=1, memory=f"{gib:g}GiB")
        found[f"{shape.mib} MiB, {shape.queued} queued"] = result
        print(f"{shape}: {result['summary']}", flush=True)
    ratios = {name: (round(r["ratio"], 3), round(r["possible"], 3)) for name, r in found.items()}
    return {
        "good": all(r["good"] for r in found.values()),
        "summary": f"lock:auto of the time slices, and the most possible: {ratios}",
        "shapes": found,
    }


def parse_shapes(text: str) -> list[Shape]:
    """MIB:QUEUED, with commas between."""
    return [Shape(*map(int, one.split(":"))) for one in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="reach,again", help="checks, with commas between")
    parser.add_argument("--seconds", type=float, default=45, help="of a run under lock:auto")
    parser.add_argument("--options", default="tq:30,memory:swap")
    parser.add_argument(
        "--shapes", type=parse_shapes, default=SHAPES, metavar="MIB:QUEUED,...", help="of shapes"
    )
    chosen = parser.parse_args()
    build("stream")
    checks = {
        "reach": partial(check_reach, chosen.seconds, chosen.options),
        "pair": partial(check_pair, chosen.seconds, chosen.options),
        "again": partial(check_again, chosen.seconds, chosen.options),
        "shapes": partial(check_shapes, chosen.seconds, chosen.options, chosen.shapes),
    }
    return run_checks("turns", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
