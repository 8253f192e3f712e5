"""Two trainings of which one fits: one after the other, and sharing the GPU with memory:swap.

`python -m tests.gpu.check_training [--cap GIB] [--kinds balanced,intense] [--quanta 5,30,60]`
on a machine with a GPU, as root: the heavy half of nvshare's Table 2. Each training
wants 0.9 of the capped device. balanced: half of its time on the GPU, half on the
CPU; intense: nine tenths and one. Prints a table; writes training-GPU.json in $OUT or
build/bench. Exit status 1 if a program failed or a result differs.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from tests.gpu.check_swap import WANTS, swapping
from tests.gpu.commands import whole_seconds
from tests.gpu.jobs import Job, Sharing, on_gpu, print_table, python, run_together, write_report

KINDS = {"balanced": 0.5, "intense": 0.9}  # of the time on the GPU
PROGRAM = ("-m", "tests.gpu.training")
TIMEOUT_S = 400.0


def command(measured: dict[str, Any], share_of_gpu: float, chosen: argparse.Namespace) -> list[str]:
    """A training whose cycles take so long alone, by what was measured of its parts."""
    steps = max(1, round(chosen.cycle * share_of_gpu / measured["step_s"]))
    rounds = max(1, round(chosen.cycle * (1 - share_of_gpu) / measured["round_s"]))
    arguments = ["--batch", str(measured["batch"]), "--cycles", str(chosen.cycles)]
    return python(*PROGRAM, *arguments, "--steps", str(steps), "--rounds", str(rounds))


def shared(
    share: Sharing, name: str, options: str, training: list[str], gpu: int
) -> dict[str, Any]:
    """Both at once: the time until the later one is done, and what the daemon counted."""
    jobs = [share.tenant(f"{name} {n}", options, training, on_gpu(gpu), str(gpu)) for n in range(2)]
    results = run_together(jobs, TIMEOUT_S)
    usage = [share.usage(job) for job in jobs]
    return {"seconds": whole_seconds(results), "jobs": results, "usage": usage}


def run_kind(
    share: Sharing, kind: str, measured: dict[str, Any], chosen: argparse.Namespace
) -> dict[str, Any]:
    training = command(measured, KINDS[kind], chosen)
    alone = run_together([Job.start(f"{kind}, bare", training, on_gpu(chosen.gpu))], TIMEOUT_S)[0]
    # The same program twice, one after the other.
    sequential = 2 * float(alone["seconds"])
    print(f"{kind}, sequential: {sequential:.1f} s", flush=True)
    runs = {}
    for quantum in chosen.quanta.split(","):
        name = f"{kind}, tq:{quantum}"
        options = f"tq:{quantum},memory:swap"
        runs[f"tq:{quantum}"] = shared(share, name, options, training, chosen.gpu)
        print(f"{name}: {runs[f'tq:{quantum}']['seconds']} s", flush=True)
    digests = {job["digest"] for run in runs.values() for job in run["jobs"]}
    return {
        "command": training,
        "alone": alone,
        "sequential_s": sequential,
        "ratio": {name: round(run["seconds"] / sequential, 4) for name, run in runs.items()},
        "handoffs": {n: sum(u["handoffs"] for u in run["usage"]) for n, run in runs.items()},
        "equal": digests == {alone["digest"]},
        "runs": runs,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cap", type=float, default=40.0, help="GiB of the device")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas between")
    parser.add_argument("--quanta", default="5,30,60", help="seconds, with commas between")
    parser.add_argument("--cycle", type=float, default=10.0, help="seconds, alone")
    parser.add_argument("--calibration", default="", help="what an earlier run printed of it")
    parser.add_argument("--cycles", type=int, default=6)
    chosen = parser.parse_args()
    gib = WANTS * chosen.cap
    calibration = python(*PROGRAM, "--calibrate", "--gib", str(gib))
    measured = json.loads(chosen.calibration) if chosen.calibration else None
    measured = measured or Job.start("calibration", calibration, on_gpu(chosen.gpu)).result()
    print(f"calibration: {json.dumps(measured)}", flush=True)
    report: dict[str, Any] = {"calibration": measured}
    with swapping(chosen.cap) as share:
        for kind in chosen.kinds.split(","):
            report[kind] = run_kind(share, kind, measured, chosen)
            write_report(f"training-{chosen.gpu}", report)
    kinds = chosen.kinds.split(",")
    rows: list[list[object]] = [["sequential", *(report[k]["sequential_s"] for k in kinds)]]
    for quantum in chosen.quanta.split(","):
        name = f"tq:{quantum}"
        cells = [(report[k]["runs"][name]["seconds"], report[k]["ratio"][name]) for k in kinds]
        rows.append([name, *(f"{seconds:.1f} ({ratio:.2f})" for seconds, ratio in cells)])
    rows.append(["results equal", *(report[k]["equal"] for k in kinds)])
    print_table(["", *(f"heavy_{kind}" for kind in kinds)], rows)
    return 0 if all(report[kind]["equal"] for kind in kinds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
