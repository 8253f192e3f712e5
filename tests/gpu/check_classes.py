"""A service with class:online beside batch jobs with class:offline, and by other ways.

`python -m tests.gpu.check_classes [--only saturating,long,copies,training] [--xsched DIR]` on a
machine with a GPU, as root; some three minutes, and one more with XSched. The programs are those of
tests/gpu/check_pairs.py: a service of 3.1 ms every 20 ms on average, alone and beside kernels of
2.2 ms, of 300 ms, copies to the device and back, and a training of PyTorch, where it is there.
Ways: the driver's time slices; MPS with 100, 50 and 30% of the multiprocessors for the batch job,
where a server of it can be started (only beside kernels of 2.2 ms); XSched's policy HPF (the
highest priority first) with the service above the batch job, where DIR is what it was installed
into; and gpu-lease. What the batch job does is given as a part of what it does with the driver's
slices. Prints a line a check and a table; writes classes-GPU.json in $OUT or build/bench. A check
is good if all programs ran, all results are right and the service's p99 under gpu-lease is no worse
than with the driver's slices, but for what differs by itself. On the emulated GPU: `--mib 1 --only
saturating,long,copies,switches`.

switches (not of the default): what a switch of the GPU costs the service, and which part of that a
shorter slice of the batch job could save. No cuts; each row is another daemon or another program:
slices of 50, 20 and 5 us; a service, and a batch job, of one thread that uses no memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from leased.slices.job import SHORT_US
from tests.gpu.build import KERNELS, build
from tests.gpu.check_pairs import (
    HOST_MS,
    NOISE,
    PROGRAMS,
    STEP_MS,
    bare,
    felt,
    line,
    together,
)
from tests.gpu.check_slices import REQUEST_MS, SWEEP_MS, Bench, programs
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import Job, JobFailed, on_gpu, sharing
from tests.gpu.xsched import XSched
from tests.support.together import zip_strict
from tests.support.work_dir import work_dir

SERVICE = "service"
BESIDE = ("saturating", "long", "copies", "training")
SWITCHES = "switches"
OPTIONS = ("class:online", "class:offline")
PERCENTS = (100, 50, 30)
MPS = "nvidia-cuda-mps-control"
MANY = '[classes]\nmay_online = ["all"]\n'
UNCUT = MANY + 'controller = "slices"\n'
SHORT = "leased.classes.controller.SHORT_US={}"  # for the daemon (tests/slurm/hurried.py)

Found = dict[str, Result]  # what each of the two felt, by its name
Way = Callable[[Bench, str], Found]  # how the batch job of that name runs beside the service


def alone(bench: Bench) -> Result:
    with programs(bench.bare(SERVICE, PROGRAMS[SERVICE](bench))) as (service,):
        service.job.say(line(SERVICE, bench.seconds))
        return felt(service.result())


def ours(bench: Bench, name: str) -> Found:
    with sharing("32GiB", MANY, copies=True) as share:
        jobs = [
            bench.tenant(share, one, wanted, PROGRAMS[one](bench))
            for one, wanted in zip_strict((SERVICE, name), OPTIONS)
        ]
        with programs(*jobs) as both:
            return together((SERVICE, name), both, bench.settle, bench.seconds)


@contextmanager
def mps_server(gpu: int) -> Iterator[Mapping[str, str]]:
    """The environment of programs of an MPS server of our own, in the compute mode that there is.
    They count GPUs among those that the server sees."""
    work = work_dir()
    env = on_gpu(gpu) | {
        "CUDA_MPS_PIPE_DIRECTORY": str(work / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(work / "log"),
    }
    for name in ("pipe", "log"):
        (work / name).mkdir()
    subprocess.run([MPS, "-d"], check=True, env=os.environ | env)
    try:
        yield env | on_gpu(0)
    finally:
        subprocess.run([MPS], input="quit\n", text=True, check=False, env=os.environ | env)
        shutil.rmtree(work, ignore_errors=True)


def mps(bench: Bench, name: str) -> dict[str, Found]:
    """By the percentage of the multiprocessors that the batch job may have."""
    if shutil.which(MPS) is None:
        return {}
    found = {}
    with mps_server(bench.gpu) as env:
        for percent in PERCENTS:
            part = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent)}
            jobs = [
                Job.start(f"{one}, MPS", PROGRAMS[one](bench), dict(env) | given)
                for one, given in ((SERVICE, {}), (name, part))
            ]
            with programs(*jobs) as both:
                found[f"mps {percent}%"] = together((SERVICE, name), both, 0.3, bench.seconds)
    return found


class Queue(NamedTuple):
    """Of XSched. priority: the highest goes first. level: of preemption. threshold: how many
    commands may be in flight; batch_size: how many of them are launched at once."""

    priority: int
    level: int
    threshold: int
    batch_size: int


# What XSched's authors give the program that goes first (examples/Linux/1_transparent_sched), and
# the other one by default.
FIRST, LOW = Queue(1, 1, 16, 8), "1:4:2"


def low_queues(text: str) -> dict[str, Queue]:
    """By what is written for each: LEVEL:THRESHOLD:BATCH_SIZE, with commas between."""
    return {one: Queue(0, *map(int, one.split(":"))) for one in text.split(",")}


def xsched(installed: XSched, low: Queue, bench: Bench, name: str) -> Found:
    with installed.serving("HPF"):
        jobs = [
            Job.start(
                f"{one}, XSched",
                PROGRAMS[one](bench),
                on_gpu(bench.gpu) | installed.environment(**queue._asdict()),
            )
            for one, queue in ((SERVICE, FIRST), (name, low))
        ]
        with programs(*jobs) as both:
            return together((SERVICE, name), both, 0.3, bench.seconds)


def check(bench: Bench, name: str, more: Mapping[str, Way]) -> Result:
    before = alone(bench)
    pair = (SERVICE, name)
    ways: dict[str, Found] = {"driver": bare(bench, [pair])[pair]}
    if name == BESIDE[0]:
        ways |= mps(bench, name)
    failed = []
    for way, run in more.items():
        try:
            ways[way] = run(bench, name)
        except JobFailed as fault:
            failed.append(way)
            print(f"FAILED under {way}: {fault}", flush=True)
    ways["gpu-lease"] = ours(bench, name)
    leftover = ways["driver"][name]["done_s"] or 1
    texts = [f"alone {_latency(before)}"]
    for way, found in ways.items():
        part = found[name]["done_s"] / leftover
        texts.append(f"{way} {_latency(found[SERVICE])}, batch {part:.3f}")
    texts += [f"{way} failed" for way in failed]
    wrong = sum(one["wrong"] for found in ways.values() for one in found.values())
    most = NOISE * ways["driver"][SERVICE]["p99_ms"] + HOST_MS
    p99 = ways["gpu-lease"][SERVICE]["p99_ms"]
    return {
        "good": wrong == 0 and not failed and p99 <= most,
        "summary": f"mean/p50/p99 ms: {'; '.join(texts)}; {wrong} wrong",
        "alone": before,
        "ways": ways,
    }


class Switched(NamedTuple):
    """A row of `switches`. us: slice of the batch job. memory: of the service, of the batch job,
    whether it sweeps memory by all multiprocessors, or is one thread."""

    us: int = SHORT_US
    memory: tuple[bool, bool] = (True, True)

    @property
    def title(self) -> str:
        one = [n for n, sweeps in zip_strict(("service", "batch"), self.memory) if not sweeps]
        return f"{self.us} us" + "".join(f", {name} of one thread" for name in one)


ROWS = (
    Switched(),
    Switched(20),
    Switched(5),
    Switched(memory=(False, True)),
    Switched(memory=(True, False)),
)


def spins(ms: float, kernels: int, queued: int) -> list[str]:
    """Kernels of one thread that take so long."""
    amount = f"{round(ms * 1e6)}x{kernels}"
    return [str(build("shares")), str(KERNELS), "spin", amount, str(queued)]


def commands(bench: Bench, row: Switched) -> list[list[str]]:
    pair = (SERVICE, BESIDE[0])
    thread = spins(REQUEST_MS, 1, 1), spins(SWEEP_MS, round(STEP_MS / SWEEP_MS), 2)
    return [
        PROGRAMS[name](bench) if sweeps else spin
        for name, sweeps, spin in zip_strict(pair, row.memory, thread)
    ]


def switched(bench: Bench, row: Switched) -> tuple[Result, Found]:
    """What the service takes alone; and what both felt under gpu-lease."""
    pair, made = (SERVICE, BESIDE[0]), commands(bench, row)
    with sharing("32GiB", UNCUT, copies=True, hurried=[SHORT.format(row.us)]) as share:
        jobs = [bench.tenant(share, *of) for of in zip_strict(pair, OPTIONS, made)]
        with programs(*jobs) as both:
            both[0].job.say(line(SERVICE, bench.seconds / 2))
            return felt(both[0].result()), together(pair, both, bench.settle, bench.seconds)


def check_switches(bench: Bench) -> Result:
    pair = (SERVICE, BESIDE[0])
    driver = bare(bench, [pair])[pair]
    texts = [f"driver {_latency(driver[SERVICE])}, batch {driver[pair[1]]['done_s']:.1f}/s"]
    found = {}
    for row in ROWS:
        before, both = switched(bench, row)
        found[row.title] = {"alone": before, **both}
        more = both[SERVICE]["mean_ms"] - before["mean_ms"]
        part = both[pair[1]]["done_s"] / (driver[pair[1]]["done_s"] or 1)
        texts.append(
            f"{row.title}: alone {_latency(before)}, beside {_latency(both[SERVICE])} "
            f"({1e3 * more:+.0f} us, {more / before['mean_ms']:.1%}), batch {part:.3f}"
        )
        print(texts[-1], flush=True)
    wrong = sum(one["wrong"] for row in (driver, *found.values()) for one in row.values())
    return {
        "good": wrong == 0,
        "summary": "; ".join([*texts, f"{wrong} wrong"]),
        "driver": driver,
        "rows": found,
    }


def _latency(found: Mapping[str, Any]) -> str:
    return "/".join(f"{found[key]:.2f}" for key in ("mean_ms", "p50_ms", "p99_ms"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(BESIDE), help="names, with commas between")
    parser.add_argument("--gpu", type=int, default=0, help="index")
    parser.add_argument("--mib", type=int, default=64, help="of memory that a kernel sweeps")
    parser.add_argument("--seconds", type=float, default=5, help="of a timed part")
    parser.add_argument(
        "--settle", type=float, default=24, help="seconds before it under gpu-lease"
    )
    parser.add_argument("--xsched", type=Path, help="directory into which XSched was installed")
    parser.add_argument(
        "--low",
        type=low_queues,
        default=LOW,
        help="LEVEL:THRESHOLD:BATCH_SIZE of the batch job's queues of XSched, with commas between",
    )
    chosen = parser.parse_args()
    more: dict[str, Way] = {}
    if chosen.xsched:
        installed = XSched(chosen.xsched)
        more = {f"xsched {n}": partial(xsched, installed, low) for n, low in chosen.low.items()}
    build("shares")
    bench = Bench(chosen.gpu, chosen.mib, chosen.seconds, chosen.settle, 10, 64, "6GiB")
    checks: dict[str, Callable[[], Result]] = {
        name: partial(check, bench, name, more) for name in BESIDE
    }
    checks[SWITCHES] = partial(check_switches, bench)
    return run_checks(f"classes-{chosen.gpu}", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
