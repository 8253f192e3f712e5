"""Shares of a GPU's time: does each job get what it asked for, and what does sharing cost?

`python -m tests.gpu.check_elastic [--only kernels,limits,torch,...]` on a machine with a GPU.
kernels: programs of one kernel after the other, 0.1 to 20 ms long, with shares of 10:90, 30:70 and
20:30:50. uneven: short kernels beside long ones, in both orders. limits: one job alone with a
limit, and one beside another that has none. torch, graph, jax: two loops of PyTorch or JAX with
shares of 10:90 and 30:70. mixed: of both. Each with quanta of 30 and of 100 ms. What a job got is
its rate as a part of the rate that it has alone; its share is that part of what all got together,
in windows of ten seconds. Each process works alone for some seconds before the run and after it,
since processes of one program differ by some percent on a card; drift is by how much the two
differ, at most. Where the host's speed changes, `--rounds N` repeats all of it by turns, and the
median of the rounds counts. On a machine that has enough, each has two cores of its own.
Prints a table, and writes elastic-shares-GPU.json in $OUT or build/bench. On the emulated
GPU: `--kernel spin`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import mean
from typing import Any

from leased.api.client import ask
from tests.gpu.build import KERNELS, build
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import (
    Job,
    Sharing,
    framework_python,
    on_gpu,
    print_table,
    sharing,
    stopping,
)
from tests.gpu.speed.placing import own_cores, pin
from tests.support.together import pairwise, zip_strict

MEMORY = "32GiB"
WINDOW_S = 10
MOST_ERROR = 0.02
LEAST_TOGETHER = {30: 0.95, 100: 0.97}  # by quantum in ms
RATIOS = ((10, 90), (30, 70), (20, 30, 50))
MOST_JOBS = max(map(len, RATIOS))
LENGTHS = (0.1, 1.0, 5.0, 20.0)  # ms
ALONE_S = 5.0  # of each program, before and after a run; the first second does not count
AHEAD_MS = 20.0  # of kernels that a program submits ahead

Command = list[str]


@dataclass(frozen=True)
class Asked:
    """A job: what it runs, and its share. wants: the part that it should get."""

    program: str
    options: str
    wants: float


@dataclass(frozen=True)
class Together:
    """All programs at work at once. results: what each did by second; leases: in s, of each."""

    results: list[dict[str, Any]]
    leases: list[float]
    handoffs: int

    @property
    def parts(self) -> list[float]:
        return [one / sum(self.leases) for one in self.leases]


@dataclass
class Bench:
    """What all checks use. amounts: by ms, what makes a kernel so long. rounds: how often a run's
    programs work together, alone before and after each time."""

    kernel: str
    seconds: float
    settle: int
    quanta: Sequence[int]
    gpu: int = 0
    cores: Sequence[Sequence[int]] = ()  # of each job that runs at once
    rounds: int = 1
    amounts: dict[float, int] = field(default_factory=dict)

    def command(self, program: str) -> Command:
        """program: torch, graph or jax, or the length of a kernel in ms."""
        if program in ("torch", "graph", "jax"):
            return framework_python("-m", "tests.gpu.share_loops", program)
        ms = float(program)
        queued = str(max(2, min(512, round(AHEAD_MS / ms))))
        amount = str(self.amount(ms))
        return [str(build("shares")), str(KERNELS), self.kernel, amount, queued]

    def amount(self, ms: float) -> int:
        """What makes a kernel so long."""
        if self.kernel == "spin":
            return round(ms * 1e6)
        if ms not in self.amounts:
            tried = 1 + round(ms * 100)
            shares = [str(build("shares")), str(KERNELS), self.kernel, str(tried), "16", "0"]
            env = os.environ | on_gpu(self.gpu)
            run = subprocess.run(shares, check=True, capture_output=True, env=env)
            found = json.loads(run.stdout)
            self.amounts[ms] = max(1, round(tried * ms / found["ms"]))
        return self.amounts[ms]

    def run(self, jobs: Sequence[Asked], quantum: int) -> dict[str, Any]:
        """Jobs that work together, and what each does alone before and after each round."""
        with sharing(MEMORY, 'quantum_min = "10ms"\n') as share:
            started = [
                share.tenant(
                    f"{job.program} {job.options}",
                    f"{job.options},tq:{quantum}ms,lock:on",
                    self.command(job.program),
                    on_gpu(self.gpu),
                    str(self.gpu),
                )
                for job in jobs
            ]
            with stopping(*started):
                programs = [Program(job) for job in started]
                for job, cores in zip(started, self.cores):
                    pin(job.process.pid, cores)
                alone = [rates_alone(share, programs, self.gpu)]
                found = []
                for _ in range(self.rounds):
                    found.append(self.together(share, started, programs))
                    alone.append(rates_alone(share, programs, self.gpu))
        return over_rounds(jobs, found, alone, self.settle, quantum)

    def together(
        self, share: Sharing, started: Sequence[Job], programs: Sequence[Program]
    ) -> Together:
        """All work for `seconds`."""
        for program in programs:
            program.begin(self.seconds)
        time.sleep(self.settle)
        first = [share.usage(job) for job in started]
        time.sleep(WINDOW_S)
        last = [share.usage(job) for job in started]
        used = list(zip_strict(last, first))
        return Together(
            [program.result() for program in programs],
            [a["lease_s"] - b["lease_s"] for a, b in used],
            sum(a["handoffs"] - b["handoffs"] for a, b in used),
        )


class Program:
    """A program that is ready, and works when it is told."""

    def __init__(self, job: Job):
        self.job = job
        job.wait_ready()
        _, self.read = job.next_line(0)

    def begin(self, seconds: float) -> None:
        self.job.say(f"{seconds:g}")

    def result(self) -> dict[str, Any]:
        """What it did, when it has."""
        line, self.read = self.job.next_line(self.read)
        return dict(json.loads(line))


def rates_alone(share: Sharing, programs: Sequence[Program], gpu: int) -> list[float]:
    """How much each does in a second while the others do nothing and no limit holds."""
    ask(share.admin, {"op": "set", "device": str(gpu), "lock": "off"})
    found = []
    for program in programs:
        program.begin(ALONE_S)
        counts = [second[0] for second in rates([program.result()], 1)]
        found.append(sum(counts) / len(counts))
    ask(share.admin, {"op": "set", "device": str(gpu), "lock": "on"})
    return found


def rates(results: Sequence[Mapping[str, Any]], settle: int) -> list[list[int]]:
    """What each did in every second that lies whole in the run, but for the first few."""
    first = int(max(result["from"] for result in results)) + 1 + settle
    last = int(min(result["to"] for result in results))
    return [[r["by_second"].get(str(at), 0) for r in results] for at in range(first, last)]


def means(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """The rate alone of each program, as it was around a round."""
    return [mean(pair) for pair in zip_strict(before, after)]


def drift(before: Sequence[float], after: Sequence[float]) -> float:
    """By how much the rates alone around a round differ, at most."""
    return max(abs(a / b - 1) for b, a in zip_strict(before, after))


def over_rounds(
    jobs: Sequence[Asked],
    found: Sequence[Together],
    alone: Sequence[Sequence[float]],
    settle: int,
    quantum: int,
) -> dict[str, Any]:
    """The worst window of all rounds, and means over the rounds.

    alone: the rates before and after each round.
    """
    pairs = list(pairwise(alone))
    rounds = [
        judged(jobs, rates(one.results, settle), means(*pair), quantum)
        for one, pair in zip_strict(found, pairs)
    ]
    together = [one["together"] for one in rounds]
    worst = max(rounds, key=lambda one: one["error"])
    leased = zip_strict(*(one.parts for one in found))
    return worst | {
        "together": round(mean(together), 4),
        "together_by_round": together,
        "done": [round(mean(parts), 4) for parts in zip_strict(*(one["done"] for one in rounds))],
        "windows": sum(one["windows"] for one in rounds),
        "good": worst["error"] <= MOST_ERROR and mean(together) >= LEAST_TOGETHER.get(quantum, 0.9),
        "by_second": [row for one in rounds for row in one["by_second"]],
        "of_leases": [round(mean(parts), 4) for parts in leased],
        "leased": mean(sum(one.leases) for one in found) / WINDOW_S,
        "handoffs_s": mean(one.handoffs for one in found) / WINDOW_S,
        "alone_s": [list(row) for row in alone],
        "drift": round(max(drift(*pair) for pair in pairs), 4),
    }


def judged(
    jobs: Sequence[Asked], seconds: Sequence[Sequence[int]], alone: Sequence[float], quantum: int
) -> dict[str, Any]:
    """Of each job the part that it got in the window in which that is farthest from what it
    wants, and how much all did together."""
    parts = [[n / rate for n, rate in zip_strict(row, alone)] for row in seconds]
    spans = [parts[n : n + WINDOW_S] for n in range(max(1, len(parts) - WINDOW_S + 1))]
    worst, shown = -1.0, [0.0] * len(jobs)
    full = sum(job.wants for job in jobs)  # below 1 where limits leave some unused
    for span in spans:
        sums = [sum(column) for column in zip_strict(*span)]
        got = [full * one / (sum(sums) or 1) for one in sums]
        if full < 1:  # nobody to compare with
            got = [one / len(span) for one in sums]
        error = max(abs(g - job.wants) for g, job in zip_strict(got, jobs))
        if error > worst:
            worst, shown = error, got
    totals = [sum(column) for column in zip_strict(*parts)]
    together = sum(totals) / len(parts) / full
    return {
        "quantum_ms": quantum,
        "programs": [job.program for job in jobs],
        "wants": [job.wants for job in jobs],
        "got": [round(one, 4) for one in shown],
        "error": round(worst, 4),
        "together": round(together, 4),
        "done": [one / (sum(totals) or 1) for one in totals],
        "windows": len(spans),
        "good": worst <= MOST_ERROR and together >= LEAST_TOGETHER.get(quantum, 0.9),
        "by_second": [list(row) for row in seconds],
    }


def by_ratio(programs: Sequence[str], ratio: Sequence[int]) -> list[Asked]:
    return [
        Asked(program, f"request:{part / 100}", part / 100)
        for program, part in zip_strict(programs, ratio)
    ]


def check(bench: Bench, mixes: Sequence[Sequence[Asked]]) -> Result:
    runs = []
    for quantum in bench.quanta:
        for jobs in mixes:
            found = bench.run(jobs, quantum)
            runs.append(found)
            print({key: value for key, value in found.items() if key != "by_second"}, flush=True)
    columns = ("quantum_ms", "programs", "wants", "got", "error", "together", "drift", "good")
    print_table(columns, [[run[column] for column in columns] for run in runs])
    worst = max(run["error"] for run in runs)
    least = min(run["together"] for run in runs)
    return {
        "good": all(run["good"] for run in runs),
        "summary": f"error {worst:.4f} at most in {WINDOW_S} s, together {least:.3f} at least",
        "runs": runs,
    }


def mixes_of(
    name: str, lengths: Sequence[float], ratios: Sequence[Sequence[int]]
) -> list[list[Asked]]:
    if name == "kernels":
        return [by_ratio([str(ms)] * len(r), r) for ms in lengths for r in ratios]
    if name == "uneven":
        short, long = str(min(lengths)), str(max(lengths))
        return [by_ratio(pair, (30, 70)) for pair in ((short, long), (long, short))]
    if name == "limits":
        ms = str(lengths[len(lengths) // 2])
        alone = [[Asked(ms, f"limit:{limit}", limit)] for limit in (0.3, 0.6)]
        return [*alone, [Asked(ms, "request:0.1,limit:0.2", 0.2), Asked(ms, "request:0", 0.8)]]
    if name == "mixed":
        return [by_ratio(("torch", "jax"), (30, 70)), by_ratio(("jax", "graph"), (30, 70))]
    return [by_ratio((name, name), ratio) for ratio in ratios if len(ratio) == 2]


CHECKS = ("kernels", "uneven", "limits", "torch", "graph", "jax", "mixed")


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="kernels,uneven,limits", help=", ".join(CHECKS))
    parser.add_argument("--kernel", choices=("add", "spin"), default="add")
    parser.add_argument("--lengths", type=numbers, default=list(LENGTHS), help="ms of kernels")
    parser.add_argument("--ratios", default="10:90,30:70,20:30:50")
    parser.add_argument("--quanta", type=numbers, default=[30, 100], help="ms")
    parser.add_argument("--seconds", type=float, default=16, help="of each run")
    parser.add_argument("--settle", type=int, default=3, help="seconds of it that do not count")
    parser.add_argument("--rounds", type=int, default=1, help="of each run, alone and together")
    parser.add_argument("--gpu", type=int, default=0, help="index")
    chosen = parser.parse_args()
    ratios = [[int(part) for part in one.split(":")] for one in chosen.ratios.split(",")]
    quanta = [int(ms) for ms in chosen.quanta]
    cores = own_cores(MOST_JOBS)
    bench = Bench(
        *(chosen.kernel, chosen.seconds, chosen.settle, quanta, chosen.gpu, cores, chosen.rounds)
    )
    checks = {
        name: partial(check, bench, mixes_of(name, chosen.lengths, ratios)) for name in CHECKS
    }
    return run_checks(f"elastic-shares-{chosen.gpu}", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
