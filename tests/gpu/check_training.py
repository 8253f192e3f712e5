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

from leased import policy
from tests.gpu.check_swap import WANTS, swapping
from tests.gpu.commands import whole_seconds
from tests.gpu.jobs import (
    Job,
    Sharing,
    framework_python,
    on_gpu,
    print_table,
    run_together,
    touch_host_memory,
    write_report,
)

KINDS = {"balanced": 0.5, "intense": 0.9}  # of the time on the GPU
PROGRAM = ("-m", "tests.gpu.training")
TIMEOUT_S = 400.0


def parts_of(measured: dict[str, Any], share_of_gpu: float, cycle_s: float) -> tuple[int, int]:
    """Steps and rounds of a cycle that takes so long alone, by what was measured of them."""
    steps = max(1, round(cycle_s * share_of_gpu / measured["step_s"]))
    return steps, max(1, round(cycle_s * (1 - share_of_gpu) / measured["round_s"]))


def command(measured: dict[str, Any], share_of_gpu: float, chosen: argparse.Namespace) -> list[str]:
    """A training whose cycles take so long alone."""
    steps, rounds = parts_of(measured, share_of_gpu, chosen.cycle)
    arguments = ["--batch", str(measured["batch"]), "--cycles", str(chosen.cycles)]
    return framework_python(*PROGRAM, *arguments, "--steps", str(steps), "--rounds", str(rounds))


def shared(
    share: Sharing, name: str, options: str, training: list[str], gpu: int
) -> dict[str, Any]:
    """Both at once: the time until the later one is done, and what the daemon counted."""
    jobs = [share.tenant(f"{name} {n}", options, training, on_gpu(gpu), str(gpu)) for n in range(2)]
    results = run_together(jobs, TIMEOUT_S)
    usage = [share.usage(job) for job in jobs]
    said = [job.said()[-20000:] for job in jobs]
    return {"seconds": whole_seconds(results), "jobs": results, "usage": usage, "said": said}


def run_kind(share: Sharing, kind: str, chosen: argparse.Namespace, report: dict[str, Any]) -> None:
    """Into the report, which is written after each run: it may be the last."""
    training = command(report["calibration"], KINDS[kind], chosen)
    alone = run_together([Job.start(f"{kind}, bare", training, on_gpu(chosen.gpu))], TIMEOUT_S)[0]
    # The same program twice, one after the other.
    sequential = 2 * float(alone["seconds"])
    print(f"{kind}, sequential: {sequential:.1f} s", flush=True)
    found = {"command": training, "alone": alone, "sequential_s": sequential, "equal": True}
    report[kind] = found | {"runs": {}}
    for quantum in chosen.quanta.split(","):
        options = f"tq:{quantum},memory:swap"
        run = shared(share, f"{kind}, tq:{quantum}", options, training, chosen.gpu)
        run["ratio"] = round(run["seconds"] / sequential, 4)
        run["handoffs"] = sum(used["handoffs"] for used in run["usage"])
        print(f"{kind}, tq:{quantum}: {run['seconds']} s", flush=True)
        report[kind]["runs"][f"tq:{quantum}"] = run
        report[kind]["equal"] &= {job["digest"] for job in run["jobs"]} == {alone["digest"]}
        write_report(f"training-{chosen.gpu}", report)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cap", type=float, default=40.0, help="GiB of the device")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--kinds", default=",".join(KINDS), help="with commas between")
    parser.add_argument("--policy", choices=policy.names(), default=policy.DEFAULT)
    parser.add_argument("--quanta", default="5,30,60", help="seconds, with commas between")
    parser.add_argument("--cycle", type=float, default=10.0, help="seconds, alone")
    parser.add_argument("--calibration", default="", help="what an earlier run printed of it")
    parser.add_argument("--cycles", type=int, default=6)
    parser.add_argument("--batch", type=int, help="that fills 0.9 of the cap, if known")
    chosen = parser.parse_args()
    gib = WANTS * chosen.cap
    calibration = framework_python(*PROGRAM, "--calibrate", "--gib", str(gib))
    calibration += ["--batch", str(chosen.batch)] if chosen.batch else []
    measured = json.loads(chosen.calibration) if chosen.calibration else None
    measured = measured or Job.start("calibration", calibration, on_gpu(chosen.gpu)).result()
    print(f"calibration: {json.dumps(measured)}", flush=True)
    touch_host_memory(int(2 * measured["bytes"]))
    report: dict[str, Any] = {"calibration": measured, "policy": chosen.policy}
    with swapping(chosen.cap, policy_name=chosen.policy) as share:
        for kind in chosen.kinds.split(","):
            run_kind(share, kind, chosen, report)
    kinds = chosen.kinds.split(",")
    rows: list[list[object]] = [["sequential", *(report[k]["sequential_s"] for k in kinds)]]
    for quantum in chosen.quanta.split(","):
        name = f"tq:{quantum}"
        runs = [report[kind]["runs"][name] for kind in kinds]
        rows.append([name, *(f"{run['seconds']:.1f} ({run['ratio']:.2f})" for run in runs)])
    rows.append(["results equal", *(report[k]["equal"] for k in kinds)])
    print_table(["", *(f"heavy_{kind}" for kind in kinds)], rows)
    return 0 if all(report[kind]["equal"] for kind in kinds) else 1


if __name__ == "__main__":
    raise SystemExit(main())
