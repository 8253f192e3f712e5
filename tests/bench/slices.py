"""What the GPU's own time slices and stops do for jobs: `make bench NAME=slices`.

Times are given as on the card, in ms, on a model whose kernels take four times as long as an
H200's; those of `handoff_under_long_kernel_ms` are the clock's. To build/bench/slices.json.

`service`: 3.1 ms of work every 20 ms on average, half to one and a half times that, whether the
last one has ended or not. Alone and, as `default`, beside a job that waits for each of its
kernels of 2.2 ms, both with the driver's slices and without gpu-lease. Then as jobs of gpu-lease,
after a while: beside the same job, and beside kernels of 300 ms. `batch_of_leftover`: what the
job beside it gets, of what it gets by default. `saturating_of_alone`: two jobs with kernels of
2.2 ms, eight of which wait, together, of one of them without gpu-lease. `shares`: such jobs with
shares. `handoff_under_long_kernel_ms`: from the last work of one job to the first work of the
next; both have kernels of 10 s and no memory. `moved_under_stop`: two jobs that do not fit
together have kernels of 2.3 s: the handoffs, how much left the device, and how many words were
wrong at the end.

At the end it has a line for each target, and status 1 where one is missed.

With `ARGS=--direct` there is no gpu-lease: a library that is loaded before the programs sets the
slices. That shows what the emulated GPU does with slices, ends with the shares and has no targets.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench import write
from tests.bench.handoff import gaps, moved
from tests.bench.targets import beyond, print_table
from tests.emugpu.programs import IMPORTS, finish, go_on, line
from tests.emugpu.server import BUILD, ROOT, EmulatedGpu, model_of
from tests.slurm.leased import Leased
from tests.support import tenant
from tests.support.together import zip_strict

SLOW, ORDINARY = "emu-h200-slow", "emu-h200-small"
CARD_SLICE_US = 2048  # what time_slice_us of a model stands for
MIB = 1 << 20

SERVICE_MS, EVERY_MS, REQUESTS = 3.1, 20.0, 250
BATCH_MS, LONG_MS, SATURATING_MS, HANDOFF_MS = 2.2, 300.0, 2.2, 10_000.0
SERVICE_US, BATCH_US, SATURATING_US = 20000, 50, 4000  # by hand
SHARES = (0.1, 0.9)
SHARES_US = 10000  # by hand: the slices of all jobs with a share together
QUEUED, WINDOW_S, HANDOFFS, FIRST_HANDOFFS = 8, 5.0, 9, 2
LEARNS_S = 12.0  # until the daemon has seen what jobs do
MOVED = 160 * MIB  # of 256
TARGETS = {
    "service p50, of alone": 1.08,
    "service p99, of alone": 1.08,
    "service p50 beside 300 ms kernels, of alone": 1.08,
    "service p99 beside 300 ms kernels, of alone": 1.08,
    "batch, of the leftover": 0.99,
    "saturating, of alone": 0.95,
    "error of a share": 0.01,
    "handoff without memory, ms": 5.0,
    "wrong words": 0,
}
AT_LEAST = ("batch, of the leftover", "saturating, of alone")

# Kernels of 2.3 s, of which handoffs stop some.
MOVES = f"""
import numpy as np
setup()
n = {MOVED} // 4; p = ok(d.cuMemAlloc({MOVED})); ok(launch("fill", p, n, os.getpid()))
ok(d.cuCtxSynchronize()); say("ready"); wait()
for _ in range(3): ok(launch("add", p, n, 1, 60))
out = np.zeros(n, dtype=np.uint32); ok(d.cuMemcpyDtoH(out.ctypes.data, p, {MOVED}))
want = np.arange(n, dtype=np.uint32) * np.uint32(2654435761) + np.uint32(os.getpid() + 180)
say(int((out != want).sum()))
"""

Process = subprocess.Popen[str]


def scale() -> float:
    """How many times as long as on the card a kernel takes on the slow model."""
    return model_of(SLOW)["time_slice_us"] / CARD_SLICE_US


SCALE = scale()


class Job(NamedTuple):
    """What is asked for it. slice_us: by hand; 0: the driver's. options: of gpu-lease."""

    slice_us: int = 0
    options: str = ""


class Site:
    """A device and what starts jobs on it. leased: None: they run without gpu-lease."""

    def __init__(self, gpu: EmulatedGpu, leased: Leased | None = None) -> None:
        self.gpu, self.leased = gpu, leased
        self.jobs = 0
        self.learns_s = LEARNS_S if leased else 0.0

    def start(self, job: Job, *command: object) -> Process:
        """A program in a session of its own, which has said that it is ready."""
        env, before = os.environ | self.gpu.env, []
        if self.leased:
            self.jobs += 1
            env = self.leased.env
            before = tenant.command(self.leased.admin_socket, self.jobs, job.options)
        elif job.slice_us:
            env |= {"LD_PRELOAD": str(BUILD / "libemugpu_groups.so")}
            env |= {"EMUGPU_SLICE_US": str(job.slice_us)}
        process = subprocess.Popen(
            [*before, *map(str, command)],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        if line(process) != "ready":
            raise RuntimeError(f"{command} did not start")
        return process

    def batch(self, job: Job, kernel_ms: float, depth: int) -> Process:
        """Kernels back to back, from now on."""
        process = self.start(job, BUILD / "turns", "batch", kernel_ms * 1000, depth)
        go_on(process)
        return process


class Waits(NamedTuple):
    """What a service's requests took, in ms of the card."""

    p50: float
    p99: float
    mean: float


class Beside(NamedTuple):
    """A service, and how many kernels a second the job beside it has run."""

    service: Waits
    batch: float


def end(process: Process) -> None:
    """Of a program that may be in a long kernel."""
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def serves(site: Site, job: Job) -> Process:
    """A service, from now on. The first requests are for the daemon to learn."""
    wishes = (SERVICE_MS * 1000 * SCALE, EVERY_MS * 1000 * SCALE, learning(site) + REQUESTS)
    process = site.start(job, BUILD / "turns", "service", *wishes)
    go_on(process)
    return process


def learning(site: Site) -> int:
    return round(site.learns_s * 1000 / EVERY_MS / SCALE)


def waits_of(site: Site, process: Process) -> Waits:
    """What the last requests of a service took, at its end."""
    said = finish(process).split()[learning(site) :]
    waits = sorted(float(us) / 1000 / SCALE for us in said)
    return Waits(statistics.median(waits), waits[int(len(waits) * 0.99)], statistics.fmean(waits))


def served(site: Site, job: Job) -> Waits:
    return waits_of(site, serves(site, job))


def beside(site: Site, kernel_ms: float, service: Job, batch: Job) -> Beside:
    """A service beside a job that waits for each of its kernels."""
    process = site.batch(batch, kernel_ms * SCALE, 1)
    waits = served(site, service)
    go_on(process)
    kernels, us = map(float, finish(process).split())
    return Beside(waits, kernels / us * 1e6 * SCALE)


def saturated(site: Site, jobs: Sequence[Job]) -> list[float]:
    """Jobs that each have kernels queued all the time: which part of the device each has."""

    def busy() -> list[int]:
        """By job: those that came last stand first."""
        there = [p for p in site.gpu.stats()["processes"] if p["alive"]]
        return [p["busy_ns"] for p in reversed(there)]

    processes = [site.batch(job, SATURATING_MS * SCALE, QUEUED) for job in jobs]
    time.sleep(site.learns_s)
    start, before = time.monotonic_ns(), busy()
    time.sleep(WINDOW_S)
    took, after = time.monotonic_ns() - start, busy()
    for process in processes:
        end(process)
    return [(b - a) / took for a, b in zip_strict(before, after)]


def handoff_ms(site: Site) -> float:
    """The median time in which the device does nothing at a handoff."""
    options = Job(options="memory:swap,lock:on,tq:200ms")
    processes = [site.batch(options, HANDOFF_MS, 1) for _ in range(2)]
    while len(gaps(site.gpu)) < FIRST_HANDOFFS + HANDOFFS:
        time.sleep(0.2)
    for process in processes:
        end(process)
    return statistics.median(gaps(site.gpu)[FIRST_HANDOFFS : FIRST_HANDOFFS + HANDOFFS]) * 1000


def moved_under_stop(site: Site) -> dict[str, int]:
    options = Job(options="memory:swap,lock:on,tq:300ms")
    pair = [site.start(options, sys.executable, "-c", IMPORTS + MOVES) for _ in range(2)]
    handoffs, out = len(gaps(site.gpu)), moved(site.gpu)[0]
    for process in pair:
        go_on(process)
    wrong = sum(int(finish(process)) for process in pair)
    handoffs, out = len(gaps(site.gpu)) - handoffs, moved(site.gpu)[0] - out
    return {"bytes": out - 2 * MOVED, "wrong": wrong, "handoffs": handoffs}


@contextmanager
def shared(work: Path, model: str, with_lease: bool = True, config: str = "") -> Iterator[Site]:
    """A device of a model, with gpu-leased or without. config: tables of its configuration."""
    with ExitStack() as stack:
        gpu = stack.enter_context(EmulatedGpu(work / "gpu", model, trace=True))
        env, made = os.environ | gpu.env, work / "leased"
        leased = Leased(made, work / "run", env, config) if with_lease else None
        yield Site(gpu, stack.enter_context(leased) if leased else None)


def measure(work: Path, direct: bool = False) -> dict[str, Any]:
    with shared(work / "bare", SLOW, with_lease=False) as site:
        alone = served(site, Job())
        default = beside(site, BATCH_MS, Job(), Job())
        (one,) = saturated(site, [Job()])
    with shared(work / "slow", SLOW, with_lease=not direct) as site:
        service, batch = Job(SERVICE_US), Job(BATCH_US)
        short = beside(site, BATCH_MS, service, batch)
        long = beside(site, LONG_MS, service, batch)
        two = saturated(site, [Job(SATURATING_US)] * 2)
        parts = saturated(
            site, [Job(round(SHARES_US * part), f"request:{part}") for part in SHARES]
        )
    found: dict[str, Any] = {
        "service": {
            "alone_p50_ms": alone.p50,
            "alone_p99_ms": alone.p99,
            "p50_ms": short.service.p50,
            "p99_ms": short.service.p99,
            "batch_of_leftover": short.batch / default.batch,
            "default_p50_ms": default.service.p50,
            "default_p99_ms": default.service.p99,
            "long_kernels_p50_ms": long.service.p50,
            "long_kernels_p99_ms": long.service.p99,
        },
        "saturating_of_alone": sum(two) / one,
        "shares": {"asked": SHARES, "got": [part / sum(parts) for part in parts]},
    }
    if not direct:
        with shared(work / "short", ORDINARY) as site:
            found["handoff_under_long_kernel_ms"] = handoff_ms(site)
            found["moved_under_stop"] = moved_under_stop(site)
    return found


def figures(found: Mapping[str, Any]) -> dict[str, float]:
    """What has a target."""
    service, shares = found["service"], found["shares"]

    def of_alone(beside: str, part: str) -> float:
        return float(service[f"{beside}{part}_ms"] / service[f"alone_{part}_ms"])

    return {
        "service p50, of alone": of_alone("", "p50"),
        "service p99, of alone": of_alone("", "p99"),
        "service p50 beside 300 ms kernels, of alone": of_alone("long_kernels_", "p50"),
        "service p99 beside 300 ms kernels, of alone": of_alone("long_kernels_", "p99"),
        "batch, of the leftover": service["batch_of_leftover"],
        "saturating, of alone": found["saturating_of_alone"],
        "error of a share": max(
            abs(asked - got) for asked, got in zip_strict(shares["asked"], shares["got"])
        ),
        "handoff without memory, ms": found["handoff_under_long_kernel_ms"],
        "wrong words": found["moved_under_stop"]["wrong"],
    }


def urgent() -> None:
    """Ahead of what else the machine does, where that is allowed: a few ms are measured."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("slices: what else this machine does counts, since it allows no such priority")


def main() -> None:
    urgent()
    direct = sys.argv[1:] == ["--direct"]
    found = write("slices", lambda work: measure(work, direct))
    rounded = json.loads(json.dumps(found), parse_float=lambda text: round(float(text), 4))
    print("On the emulated GPU:", json.dumps(rounded))
    if direct:
        return
    print_table(rows := figures(found), TARGETS, AT_LEAST)
    if missed := beyond(rows, TARGETS, AT_LEAST):
        raise SystemExit(f"beyond the target: {', '.join(missed)}")


if __name__ == "__main__":
    main()
