"""Do jobs that take turns on a real GPU stay apart, stay right, and lose little?

`python -m tests.gpu.check_handoff [--only slices,pairs,duty,loss,gangs]` on a machine
with a GPU, as root. Prints a line a check and a table; writes handoff.json in
$OUT or build/bench. Exit status 1 if a check failed; speeds are only reported.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path

from tests.gpu import commands
from tests.gpu.build import build, build_all
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import (
    ONE_GPU,
    Job,
    Sharing,
    finish_all,
    framework_python,
    run_together,
    sharing,
    stopping,
)
from tests.gpu.overlap import judge_files

MEMORY = "8GiB"
DUTY_LIMIT_S = 22.0
CONTENDED = 0.8  # so much of the timed part somebody must have waited


def bare(name: str, command: list[str]) -> Job:
    return Job.start(name, command, ONE_GPU)


# -- kernels of two jobs never run at once ------------------------------------------


def slices(share: Sharing, options: str, seconds: float, work: Path) -> Result:
    """Two jobs of slices at once: what overlap.py finds."""
    files = [work / f"slices-{n}" for n in range(2)]
    jobs = [
        share.tenant(
            f"slices {n}, {options}",
            options,
            [str(build("slices")), str(seconds), str(file), "ready"],
            ONE_GPU,
        )
        for n, file in enumerate(files)
    ]
    results = run_together(jobs)
    verdict = asdict(judge_files(*files))
    return verdict | {"jobs": results, "usage": [share.usage(job) for job in jobs]}


def check_slices(share: Sharing, seconds: float) -> Result:
    """By turns there is no overlap. Without the lock there is: the programs can show one."""
    with tempfile.TemporaryDirectory() as directory:
        turns = slices(share, "tq:500ms,lock:on", 2.5 * seconds, Path(directory))
        free = slices(share, "lock:off", seconds, Path(directory))
    return {
        "good": turns["overlaps"] == 0 and turns["turns"] >= 4,
        "summary": f"{turns['overlaps']} overlaps in {turns['turns']} turns, "
        f"gap {turns['gap_us_median']} us; without the lock {free['overlaps']} overlaps",
        "conclusive": free["overlaps"] > 0,
        "by turns": turns,
        "without lock": free,
    }


# -- results of two jobs are those of one -------------------------------------------


def pair(share: Sharing, name: str, steps: int) -> Result:
    """Two of one program by turns: their digests against a bare run's."""
    command = commands.workload(name, 0, steps)
    alone = bare(f"{name}, bare", command).result()
    jobs = [share.tenant(f"{name} {n} of two", "tq:1,lock:on", command, ONE_GPU) for n in range(2)]
    results = finish_all(jobs)
    usage = [share.usage(job) for job in jobs]
    equal = all(result["digest"] == alone["digest"] for result in results)
    handoffs = [used["handoffs"] for used in usage]
    return {
        "good": equal and min(handoffs) > 0,
        "summary": f"digests equal: {equal}, handoffs {handoffs}",
        "bare": alone,
        "jobs": results,
        "usage": usage,
    }


def check_pairs(share: Sharing, seconds: float) -> Result:
    """Enough steps for several turns each: about 1800 and 4000 a second when alone."""
    eager = pair(share, "torch_eager", int(2700 * seconds))
    graph = pair(share, "torch_graph", int(6000 * seconds))
    return {
        "good": eager["good"] and graph["good"],
        "summary": f"eager: {eager['summary']}; graph: {graph['summary']}",
        "torch_eager": eager,
        "torch_graph": graph,
    }


def check_gangs(share: Sharing, seconds: float) -> Result:
    """Two trainings over all GPUs at once: a gang is leased whole, or they would hang."""
    command = framework_python("-m", "tests.gpu.ddp", "--seconds", str(seconds))
    alone = Job.start("ddp, bare", command).result()
    gpus = ",".join(str(device["index"]) for device in share.devices())
    jobs = [share.tenant(f"ddp {n} of two", "tq:1,lock:on", command, gpus=gpus) for n in range(2)]
    results = finish_all(jobs)
    handoffs = [share.usage(job)["handoffs"] for job in jobs]
    equal = all(result["digest"] == alone["digest"] for result in results)
    return {
        "good": equal and min(handoffs) > 0,
        "summary": f"GPUs {gpus}: digests equal: {equal}, handoffs {handoffs}",
        "bare": alone,
        "jobs": results,
    }


# -- idle times of one are used by the other -----------------------------------------


def check_duty(share: Sharing, _: float) -> Result:
    """Two jobs, each 22 ms busy and 50 ms idle for 20 s, take little more than one."""
    command = commands.duty(commands.duty_rounds())
    alone = run_together([share.tenant("duty alone", "lock:on", command, ONE_GPU)])
    jobs = [share.tenant(f"duty {n} of two", "lock:on", command, ONE_GPU) for n in range(2)]
    results = run_together(jobs)
    seconds = commands.whole_seconds(results)
    return {
        "good": seconds <= DUTY_LIMIT_S and all(r["ok"] for r in results),
        "summary": f"one {alone[0]['seconds']} s, two {seconds} s (limit {DUTY_LIMIT_S} s)",
        "alone": alone[0],
        "jobs": results,
        "usage": [share.usage(job) for job in jobs],
    }


# -- what a job loses because somebody waits ------------------------------------------


def run_alone(share: Sharing, name: str, command: list[str]) -> Result:
    return run_together([share.tenant(f"{name} alone", "tq:10m,lock:on", command, ONE_GPU)])[0]


def run_contended(share: Sharing, name: str, command: list[str]) -> Result:
    """The program while another job waits for the GPU all the time and never gets it."""
    waiter = share.tenant(
        f"waiter beside {name}", "tq:10m,lock:on", [str(build("waiter"))], ONE_GPU
    )
    with stopping(waiter):
        job = share.tenant(f"{name} contended", "tq:10m,lock:on", command, ONE_GPU)
        result = run_together([job])[0]
        waiter.end_input()
        return result | {"waiter": waiter.result()}


def loss(share: Sharing, name: str, command: list[str], seconds: float) -> Result:
    """Speed alone and contended, each the best of two, by turns."""
    alone, contended = [], []
    for _ in range(2):
        alone.append(run_alone(share, name, command))
        contended.append(run_contended(share, name, command))
    rates = [max(map(commands.speed, runs)) for runs in (alone, contended)]
    waited = min(run["waiter"]["longest_s"] for run in contended)
    return {
        "good": waited >= CONTENDED * seconds,
        "ratio": round(rates[1] / rates[0], 4),
        "alone_steps_s": rates[0],
        "contended_steps_s": rates[1],
        "shortest_wait_s": waited,
        "alone": alone,
        "contended": contended,
    }


def check_loss(share: Sharing, seconds: float) -> Result:
    """Good means only that there was a waiter all the time; the ratios are reported."""
    programs = {
        "torch_eager": commands.workload("torch_eager", seconds, ready=True),
        "torch_graph": commands.workload("torch_graph", seconds, ready=True),
        "launch": commands.launch(seconds, ready=True),
    }
    found = {name: loss(share, name, command, seconds) for name, command in programs.items()}
    return {
        "good": all(result["good"] for result in found.values()),
        "summary": ", ".join(f"{name} {result['ratio']:.3f}" for name, result in found.items()),
        **found,
    }


CHECKS: dict[str, Callable[[Sharing, float], Result]] = {
    "slices": check_slices,
    "pairs": check_pairs,
    "duty": check_duty,
    "loss": check_loss,
    "gangs": check_gangs,
}
ON_ONE_GPU = "slices,pairs,duty,loss"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=ON_ONE_GPU, help="names, with commas between")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each timed part")
    chosen = parser.parse_args()
    build_all("slices", "duty", "waiter", "launch")
    with sharing(MEMORY) as share:
        checks = {name: partial(check, share, chosen.seconds) for name, check in CHECKS.items()}
        return run_checks("handoff", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
