"""Two jobs that each fill the GPU, under lock:auto: are turns tried, fair, and faster?

`python -m tests.gpu.check_turns [--only pair,again]` on a machine with a GPU. pair: two
jobs whose memory fits together, beside the same two bare (the driver's time slices).
again: a second such pair in the same daemon, a minute later. Writes turns.json.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any

from tests.gpu.build import build
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import ONE_GPU, Job, Sharing, run_together, sharing

MIB = 4096
WINDOW_S = 5
SLICES_S, FIRST_S = 16, 20
MEMORY = "12GiB"


def command(seconds: float) -> list[str]:
    return [str(build("stream")), str(MIB), str(seconds), "ready"]


def by_slices() -> list[list[int]]:
    """Two jobs of no daemon, as the driver lets them run."""
    return windows(
        run_together([Job.start(f"stream {n}, bare", command(SLICES_S), ONE_GPU) for n in range(2)])
    )


def by_turns(share: Sharing, options: str, seconds: float) -> list[list[int]]:
    """Two jobs of the daemon."""
    jobs = [share.tenant(f"stream {n} of two", options, command(seconds)) for n in range(2)]
    return windows(run_together(jobs))


def windows(results: Sequence[dict[str, Any]]) -> list[list[int]]:
    """Sweeps of each job in every window that lies whole in the run."""
    first = int(max(result["from"] for result in results)) + 1
    last = int(min(result["to"] for result in results))
    return [
        [
            sum(r["by_second"].get(str(second), 0) for second in range(at, at + WINDOW_S))
            for r in results
        ]
        for at in range(first, last - WINDOW_S + 1, WINDOW_S)
    ]


def apart(window: Sequence[int]) -> float:
    """How far the jobs are from each other: 0 when both got as much."""
    return 1 - min(window) / max(*window, 1)


def judge(slices: list[list[int]], turns: list[list[int]], steady_s: float) -> Result:
    """turns: the run under lock:auto; judged from so many seconds on."""
    steady = turns[int(steady_s // WINDOW_S) + 1 :]
    driver = sum(map(sum, slices)) / len(slices) / WINDOW_S
    ours = sum(map(sum, steady)) / len(steady) / WINDOW_S
    worst = max(map(apart, steady))
    return {
        "good": ours / driver >= 1.12 and worst <= 0.05,
        "summary": f"time slices {driver:.0f}/s, lock:auto {ours:.0f}/s "
        f"({ours / driver:.3f}), at most {worst:.3f} apart in {WINDOW_S} s",
        "slices": slices,
        "turns": turns,
    }


def check_pair(seconds: float, options: str) -> Result:
    slices = by_slices()
    with sharing(MEMORY) as share:
        turns = by_turns(share, options, seconds)
        why = share.devices()[0]["why"]
    return judge(slices, turns, 20) | {"why": why}


def check_again(seconds: float, options: str) -> Result:
    """What the first pair taught must not keep the second from its own trial."""
    slices = by_slices()
    with sharing(MEMORY) as share:
        by_turns(share, options, FIRST_S)
        turns = by_turns(share, options, seconds)
    return judge(slices, turns, 20)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="pair,again", help="checks, with commas between")
    parser.add_argument("--seconds", type=float, default=45, help="of a run under lock:auto")
    parser.add_argument("--options", default="tq:30,memory:swap")
    chosen = parser.parse_args()
    build("stream")
    checks = {
        "pair": partial(check_pair, chosen.seconds, chosen.options),
        "again": partial(check_again, chosen.seconds, chosen.options),
    }
    return run_checks("turns", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
