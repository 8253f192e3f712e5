"""Slices and stops of the GPU's channel groups: what they give, and what they cost.

`python -m tests.gpu.check_slices [--only service,saturating,...]` on a machine with a GPU, as root.
service, service_long: how long requests take beside a saturating job of short or long kernels.
saturating: what two such jobs do together. shares, shares_...: what jobs with a `request` get of
what they do alone, as a part of what all get; limit_...: what one with a `limit` gets, alone on the
GPU. They print each second what each got, how it was told to run, and whose work NVML says it was.
handoff: how soon the next job works where a kernel is long.
moved: kernels whose memory goes and comes back while they are stopped. torch_eager, torch_graph,
torch_conv: two trainings whose memory does not fit. exit: processes that end while their kernel is
stopped. loads: calls of other threads meanwhile. Prints a line a check and a table; writes
slices-GPU.json in $OUT or build/bench. On the emulated GPU: `--mib 1 --piece-mib 64 --cap 96MiB`,
and without the checks of PyTorch and JAX. SHARES stands for all of shares and limits but JAX.
"""

from __future__ import annotations

import argparse
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from leased.api.client import ask
from tests.gpu import commands
from tests.gpu.build import KERNELS, build, build_all
from tests.gpu.check_elastic import Program
from tests.gpu.checks import Result, run_checks
from tests.gpu.idle.residents import Resident
from tests.gpu.jobs import (
    Job,
    Sharing,
    finish_all,
    framework_python,
    on_gpu,
    run_together,
    sharing,
    stopping,
)
from tests.support.together import zip_strict

REQUEST_MS, EVERY_MS = 3.1, 20
SWEEP_MS = 2.2
QUEUED = 8
AHEAD_MS = 20.0  # of kernels that a program of a share submits ahead
ALONE_S = 3.0
MEMORY = "32GiB"  # of a device
QUIET_S = 2.5  # in which the daemon sees that a job is idle
WINDOW_S = 10  # in which shares are to hold
MOST_ERROR, LEAST_TOGETHER = 0.02, 0.96
ENDS_S = 10.0  # within how long a process has to end
STOPPED = "work is stopped in mid-kernel"
CALLS = ("load", "free", "host", "copy")  # of loads.cu
DEBUG = {"GPU_LEASE_DEBUG": "1"}
# As many as take some seconds on an H100.
TORCH_STEPS = {"torch_eager": 7000, "torch_graph": 15000, "torch_conv": 500}
TORCH_MIB, TORCH_CAP = 1792, "3500MiB"  # of one training, and where two do not fit


def stops_of(job: Job) -> int:
    """How often its work was stopped in mid-kernel, since it was started with DEBUG."""
    return job.said().count(STOPPED)


def wait_until(job: Job, true: Callable[[], bool], what: str, seconds: float = 60) -> None:
    """JobFailed: it did not become true."""
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end or job.process.poll() is not None:
            raise job.failed(f"was never {what}")
        time.sleep(0.01)


def in_window(result: Mapping[str, Any], first: int, last: int) -> float:
    """Kernels a second, in whole seconds of the clock from first to last."""
    seconds = [int(result["by_second"].get(str(s), 0)) for s in range(first, last)]
    return sum(seconds) / len(seconds)


@dataclass
class Bench:
    """What all checks use. mib: of a sweep; seconds: of a timed part; long_s: of a long kernel."""

    gpu: int
    mib: int
    seconds: float
    settle: float
    long_s: float
    piece_mib: int
    cap: str
    pass_ms: float = 0

    def sweeps(self, ms: float, queued: int, kernels: int = 1, kind: str = "add") -> list[str]:
        """A program whose kernels of so many ms use all multiprocessors and the memory. kernels: of
        a step, of which so many are queued."""
        command = [str(build("shares")), str(KERNELS), f"{kind}:{self.mib}"]
        return [*command, f"{self.rounds(ms)}x{kernels}", str(queued)]

    def rounds(self, ms: float) -> int:
        """How many passes take so long."""
        if not self.pass_ms:
            command = [str(build("shares")), str(KERNELS), f"add:{self.mib}", "16", "1", "100"]
            found = Job.start("calibration", command, on_gpu(self.gpu)).result()
            self.pass_ms = found["ms"] / 16
        return max(1, round(ms / self.pass_ms))

    def bare(self, name: str, command: Sequence[str]) -> Job:
        return Job.start(f"{name}, bare", command, on_gpu(self.gpu))

    def tenant(self, share: Sharing, name: str, options: str, command: Sequence[str]) -> Job:
        env = on_gpu(self.gpu) | DEBUG
        return share.tenant(f"{name}, {options}", options, command, env, str(self.gpu))


@contextmanager
def programs(*jobs: Job) -> Iterator[list[Program]]:
    """They are ready within, and gone at its end."""
    with stopping(*jobs):
        yield [Program(job) for job in jobs]


# -- what the slices give ------------------------------------------------------------------


def serve(bench: Bench, service: Program, settle: float, batch: Program | None = None) -> Result:
    """A service, and a batch job that works all the time: what each did."""
    timed = f"{bench.seconds} {EVERY_MS}"
    if batch:
        batch.begin(settle + bench.seconds + 2)
        time.sleep(1)
    if settle:
        service.job.say(f"{settle} {EVERY_MS}")
        service.result()
    first = time.time()
    service.job.say(timed)
    found = service.result()
    last = time.time()
    if batch:
        batch_found = batch.result()
        found["batch_s"] = in_window(batch_found, int(first) + 1, int(last))
        found["wrong"] += batch_found["wrong"]
    return found


def serve_beside(bench: Bench, batch_ms: float) -> Result:
    """Both bare, and both as jobs of default options."""
    service = bench.sweeps(REQUEST_MS, 1)
    batch = bench.sweeps(batch_ms, 2 if batch_ms > AHEAD_MS else QUEUED)
    with programs(bench.bare("service", service), bench.bare("batch", batch)) as both:
        alone = serve(bench, both[0], 0)
        bare = serve(bench, both[0], 0, both[1])
    with sharing(MEMORY, copies=True) as share:
        jobs = [bench.tenant(share, "service", "", service)]
        jobs.append(bench.tenant(share, "batch", "", batch))
        with programs(*jobs) as both:
            leased = serve(bench, both[0], bench.settle, both[1])
    part = leased["batch_s"] / (bare["batch_s"] or 1)
    return {"batch_ms": batch_ms, "alone": alone, "bare": bare, "leased": leased, "part": part}


def latency(found: Mapping[str, Any]) -> str:
    return "/".join(f"{found[name]:.2f}" for name in ("p50_ms", "p99_ms", "max_ms"))


def check_service(bench: Bench, batch_ms: float) -> Result:
    """Good: results are right. The times are reported."""
    run = serve_beside(bench, batch_ms)
    bare, leased = run["bare"], run["leased"]
    wrong = sum(found["wrong"] for found in (run["alone"], bare, leased))
    return run | {
        "good": wrong == 0,
        "summary": f"p50/p99/max ms: alone {latency(run['alone'])}; beside {batch_ms:g} ms, the "
        f"driver's slices {latency(bare)}, batch {bare['batch_s']:.1f}/s; gpu-lease "
        f"{latency(leased)}, batch {leased['batch_s']:.1f}/s ({run['part']:.3f}); {wrong} wrong",
    }


def steps_a_second(result: Mapping[str, Any]) -> float:
    steps = sum(map(int, result["by_second"].values()))
    return steps / (float(result["to"]) - float(result["from"]))


def alone_together(
    started: Sequence[Program], settle: float, seconds: float, quiet: float = 0
) -> tuple[list[float], list[Result], int]:
    """What each does alone, steps a second; what each did at once, and from which second on that
    counts. quiet: seconds between the two, in which nobody works."""
    alone = []
    for program in started:
        time.sleep(quiet)
        program.begin(ALONE_S)
        alone.append(steps_a_second(program.result()))
    time.sleep(quiet)
    for program in started:
        program.begin(settle + seconds + 2)
    first = int(time.time() + settle) + 1
    return alone, [program.result() for program in started], first


def rates_together(started: Sequence[Program], settle: float, seconds: float) -> Result:
    """What each does alone, and beside the others: kernels a second."""
    alone, results, first = alone_together(started, settle, seconds)
    together = [in_window(result, first, first + int(seconds)) for result in results]
    parts = [now / (then or 1) for now, then in zip_strict(together, alone)]
    return {
        "alone": alone,
        "together": together,
        "parts": parts,
        "sum": sum(parts),
        "wrong": sum(result["wrong"] for result in results),
    }


def check_saturating(bench: Bench) -> Result:
    command = bench.sweeps(SWEEP_MS, QUEUED)
    with programs(*(bench.bare(f"job {n}", command) for n in range(2))) as both:
        bare = rates_together(both, 0, bench.seconds)
    with sharing(MEMORY, copies=True) as share:
        jobs = [bench.tenant(share, f"job {n}", "", command) for n in range(2)]
        with programs(*jobs) as both:
            leased = rates_together(both, bench.settle, bench.seconds)
    return {
        "good": bare["wrong"] + leased["wrong"] == 0,
        "summary": f"together of one alone: bare {bare['sum']:.3f}, gpu-lease {leased['sum']:.3f}",
        "bare": bare,
        "leased": leased,
    }


# -- shares and limits -----------------------------------------------------------------------


class Asked(NamedTuple):
    """A job. part: what it is to have, and requests unless it has options. program: `kernel`, or
    `graph` of kernels, of ms, of which so many are submitted ahead; or a loop of share_loops."""

    part: float
    ms: float = 0
    queued: int = 0
    program: str = "kernel"
    options: str | None = None

    @property
    def name(self) -> str:
        return f"{self.program} {self.ms:g} ms, {self.queued} queued" if self.ms else self.program

    def command(self, bench: Bench) -> list[str]:
        if not self.ms:
            return framework_python("-m", "tests.gpu.share_loops", self.program)
        if self.program == "graph":
            return bench.sweeps(self.ms / GRAPH, self.queued, GRAPH, "graph")
        return bench.sweeps(self.ms, self.queued)


GRAPH = 5  # kernels of a graph
PAIR = (Asked(0.1, SWEEP_MS, QUEUED), Asked(0.9, SWEEP_MS, QUEUED))
WAITS = (Asked(0.3, SWEEP_MS, 1), Asked(0.7, SWEEP_MS, QUEUED))
SMALL = (Asked(0.7, 0.1, 1), Asked(0.3, SWEEP_MS, QUEUED))
THREE = (Asked(0.3, 0.1, 200), Asked(0.4, SWEEP_MS, QUEUED), Asked(0.3, 20.0, 2))
# What is left over is divided evenly, and one has no share.
THIRD = (
    Asked(0.5, SWEEP_MS, 1, options="request:0.4"),
    Asked(0.4, 2.0, QUEUED, "graph", "request:0.3"),
    Asked(0.1, SWEEP_MS, QUEUED, options=""),
)
LIMITS = {
    "limit_waits": Asked(0.3, SWEEP_MS, 1),
    "limit_small": Asked(0.3, 0.1, 1),
    "limit_graph": Asked(0.3, 2.0, QUEUED, "graph"),
}


class Watch(threading.Thread):
    """Notes once a second how the daemon lets jobs run, and whose work NVML says it is."""

    def __init__(self, share: Sharing, bench: Bench, jobs: Sequence[Job]) -> None:
        super().__init__(daemon=True)
        self.share, self.gpu, self.jobs = share, bench.gpu, jobs
        self.seen: dict[int, list[str]] = {}
        self.ends = threading.Event()

    def run(self) -> None:
        while not self.ends.wait(1 - time.time() % 1):
            status = ask(self.share.admin, {"op": "status"})
            tenants = {tenant["job_id"]: tenant for tenant in status["tenants"]}
            ran = [tenants.get(job.number, {}).get("slices", {}) for job in self.jobs]
            self.seen[int(time.time()) - 1] = [
                "; ".join(self._words(slices) for slices in one.values()) for one in ran
            ] + [f"NVML {self._nvml()}"]

    @staticmethod
    def _words(slices: Mapping[str, Any]) -> str:
        us = "driver's" if slices["slice_s"] is None else f"{slices['slice_s'] * 1e6:.0f} us"
        return f"{slices['duty']:.3f} of the time, {us} ({slices['why']})"

    def _nvml(self) -> str:
        """Percents by pid of the last second, summed over its samples."""
        try:
            import pynvml

            pynvml.nvmlInit()
            handle = pynvml.nvmlDeviceGetHandleByIndex(self.gpu)
            since = int((time.time() - 1) * 1e6)
            samples = pynvml.nvmlDeviceGetProcessUtilization(handle, since)
            return str([(sample.pid, sample.smUtil) for sample in samples])
        except Exception as fault:
            return repr(fault)

    def __exit__(self, *_: object) -> None:
        self.ends.set()
        self.join()

    def __enter__(self) -> Watch:
        self.start()
        return self


def share_out(bench: Bench, asked: Sequence[Asked]) -> Result:
    """Jobs at once: what each got of what it does alone."""
    with sharing(MEMORY, copies=True) as share:
        jobs = [
            bench.tenant(
                share,
                one.name,
                f"request:{one.part}" if one.options is None else one.options,
                one.command(bench),
            )
            for one in asked
        ]
        with programs(*jobs) as started, Watch(share, bench, jobs) as watch:
            alone, results, first = alone_together(started, bench.settle, WINDOW_S, QUIET_S)
    return judge_shares(asked, alone, results, first, watch.seen)


def judge_shares(
    asked: Sequence[Asked],
    alone: Sequence[float],
    results: Sequence[Result],
    first: int,
    seen: Mapping[int, Sequence[str]],
) -> Result:
    def parts(begin: int, end: int) -> list[float]:
        return [
            in_window(result, begin, end) / (rate or 1)
            for result, rate in zip_strict(results, alone)
        ]

    found = parts(first, first + WINDOW_S)
    together = sum(found)
    limited = len(asked) == 1
    of = 1.0 if limited else together or 1.0
    got = [part / of for part in found]
    seconds = range(min(seen, default=first), first + WINDOW_S)
    by_second = {
        second: [round(part, 3) for part in parts(second, second + 1)] for second in seconds
    }
    for second, each in by_second.items():
        mark = "*" if second >= first else " "
        print(f"  {second % 1000:3d}{mark} {each} {' | '.join(seen.get(second, []))}")
    error = max(abs(part - one.part) for part, one in zip_strict(got, asked))
    wrong = sum(result.get("wrong", 0) for result in results)
    words = [f"{one.name}: alone {rate:.1f}/s" for one, rate in zip_strict(asked, alone)]
    good = wrong == 0 and error <= MOST_ERROR and (limited or together >= LEAST_TOGETHER)
    return {
        "good": good,
        "asked": [one.part for one in asked],
        "got": got,
        "together": together,
        "alone": list(alone),
        "by_second": by_second,
        "seen": dict(seen),
        "summary": f"asked {':'.join(f'{one.part:g}' for one in asked)}, got "
        f"{':'.join(f'{part:.3f}' for part in got)}, error {error:.3f}, together {together:.3f} "
        f"of alone, {wrong} wrong ({'; '.join(words)})",
    }


def check_limit(bench: Bench, asked: Asked) -> Result:
    """One job alone on the GPU, and before and after it the same program without a limit."""
    with (
        programs(bench.bare(asked.name, asked.command(bench))) as [bare],
        sharing(MEMORY, copies=True) as share,
    ):

        def rate() -> float:
            bare.begin(ALONE_S)
            return steps_a_second(bare.result())

        before = rate()
        job = bench.tenant(share, asked.name, f"limit:{asked.part}", asked.command(bench))
        with programs(job) as [program], Watch(share, bench, [job]) as watch:
            program.begin(bench.settle + WINDOW_S + 2)
            first = int(time.time() + bench.settle) + 1
            result = program.result()
        alone = (before + rate()) / 2
    return judge_shares([asked], [alone], [result], first, watch.seen)


# -- stops in mid-kernel -------------------------------------------------------------------


def check_handoff(bench: Bench) -> Result:
    """One kernel that needs many turns, beside short ones. A pause of these is a turn of the other
    and two handoffs."""
    options, quantum_ms = "memory:swap,lock:on,tq:1", 1000
    with sharing(MEMORY, copies=True) as share:
        long = bench.tenant(share, "long", options, bench.sweeps(bench.long_s * 1e3, 1))
        short = bench.tenant(share, "short", options, bench.sweeps(1, QUEUED))
        with programs(long, short) as (a, b):
            b.begin(2 * bench.long_s)
            time.sleep(0.5)
            a.begin(0.1)
            results = [a.result(), b.result()]
            stops = stops_of(long)
    pauses = [ms - quantum_ms for ms in results[1]["pauses_ms"]]
    wrong = sum(result["wrong"] for result in results)
    texts = "no pause"
    if pauses:
        texts = f"over the turn: median {median(pauses):.1f}, max {max(pauses):.1f} ms"
    return {
        "good": wrong == 0 and stops > 1 and len(pauses) > 1,
        "summary": f"{len(pauses)} pauses, two handoffs each; {texts}; {stops} stops, "
        f"{wrong} words wrong",
        "jobs": results,
        "stops": stops,
    }


@contextmanager
def filled(jobs: Sequence[Job], mib: int) -> Iterator[list[Resident]]:
    """Programs that each hold so much memory are full of it within, and gone at its end."""
    with stopping(*jobs):
        found = [Resident(job, mib << 20) for job in jobs]
        for one in found:
            one.hear()
            one.do("fill")
        yield found


def resident(mib: int) -> list[str]:
    """A program that holds so much memory in one piece."""
    return [str(build("resident")), str(KERNELS), str(mib), "1", str(mib)]


def change_s(one: Resident) -> float:
    """How long it needs to change all of its memory once."""
    one.do("change 4")
    return float(one.do("change 8")["seconds"]) / 8


def change(residents: Sequence[Resident], rounds: int, kernels: int) -> list[float]:
    """All change their memory at once, by so many kernels of so many rounds each: the seconds of
    each kernel, also those in which it waited."""
    for one in residents:
        for _ in range(kernels):
            one.tell(f"change {rounds}")
    return [float(one.hear()["seconds"]) for one in residents for _ in range(kernels)]


def check_moved(bench: Bench) -> Result:
    """Two jobs that do not fit, each with kernels that change all of its memory."""
    command = resident(bench.piece_mib)
    with sharing(bench.cap) as share:
        jobs = [
            bench.tenant(share, f"job {n}", "memory:swap,lock:on,tq:1", command) for n in range(2)
        ]
        with filled(jobs, bench.piece_mib) as both:
            once = change_s(both[1])
            rounds = max(1, round(bench.long_s / 2 / once))
            took = change(both, rounds, 2)
            stops = [stops_of(job) for job in jobs]
            wrong = sum(one.do("check")["wrong"] for one in both)
            usage = [share.usage(job) for job in jobs]
    return {
        "good": wrong == 0 and min(stops) > 0,
        "summary": f"{wrong} pieces wrong; kernels of {rounds * once:.1f} s took "
        f"{', '.join(f'{s:.1f}' for s in took)} s; stops {stops}, "
        f"handoffs {[used['handoffs'] for used in usage]}",
        "usage": usage,
        "stops": stops,
    }


def check_torch(bench: Bench, name: str) -> Result:
    """Two of one training, whose memory does not fit: their results are a bare run's."""
    command = commands.workload(name, 2, TORCH_STEPS[name], ballast=TORCH_MIB)
    alone = bench.bare(name, command).result()
    with sharing(TORCH_CAP) as share:
        options = "memory:swap,lock:on,tq:100ms"
        jobs = [bench.tenant(share, f"{name} {n}", options, command) for n in range(2)]
        results = finish_all(jobs)
        stops = [stops_of(job) for job in jobs]
        usage = [share.usage(job) for job in jobs]
    equal = all(result["digest"] == alone["digest"] for result in results)
    return {
        "good": equal,
        "summary": f"digests equal: {equal}; steps in {alone['digest_s']} s bare, "
        f"{[result['digest_s'] for result in results]} s of two; steps/s {alone['steps_s']} bare, "
        f"{[result['steps_s'] for result in results]}; stops {stops}, "
        f"handoffs {[used['handoffs'] for used in usage]}",
        "bare": alone,
        "jobs": results,
        "usage": usage,
        "stops": stops,
    }


def end_stopped(bench: Bench, end: Callable[[Job, int], None]) -> Result:
    """A process ends while its kernel is stopped; another works on."""
    options = "memory:swap,lock:on,tq:1"
    with sharing(MEMORY, copies=True) as share:
        long = bench.tenant(share, "long", options, bench.sweeps(bench.long_s * 1e3, 1))
        short = bench.tenant(share, "short", options, bench.sweeps(1, QUEUED))
        with programs(long, short) as (a, b):
            a.job.say("leave")
            pid = int(a.result()["pid"])
            b.begin(6)
            wait_until(long, lambda: stops_of(long) > 0, "stopped in mid-kernel")
            began = time.monotonic()
            end(long, pid)
            long.process.wait(4 * bench.long_s + ENDS_S)
            took = time.monotonic() - began
            other = b.result()
    return {"took_s": took, "status": long.process.returncode, "wrong": other["wrong"]}


def check_exit(bench: Bench) -> Result:
    normal = end_stopped(bench, lambda job, _: job.end_input())
    killed = end_stopped(bench, lambda _, pid: os.kill(pid, signal.SIGKILL))
    good = max(normal["took_s"], killed["took_s"]) < ENDS_S and normal["status"] == 0
    return {
        "good": good and normal["wrong"] + killed["wrong"] == 0,
        "summary": f"normal: {normal['took_s']:.2f} s, status {normal['status']}; "
        f"killed: {killed['took_s']:.2f} s, status {killed['status']}",
        "normal": normal,
        "killed": killed,
    }


def call_beside(bench: Bench, share: Sharing, calls: str) -> Result:
    """Kernels of two seconds are stopped again and again while threads make such calls."""
    options, seconds = "memory:swap,lock:on,tq:300ms", min(4, bench.seconds)
    command = [str(build("loads")), str(KERNELS), str(bench.mib), str(bench.rounds(2000))]
    loads = bench.tenant(share, calls, options, [*command, str(seconds), calls, "ready"])
    short = bench.tenant(share, "short", options, bench.sweeps(1, QUEUED))
    with programs(short) as (beside,), stopping(loads):
        loads.wait_ready()
        beside.begin(seconds)
        [found] = run_together([loads], 60)
        stops = stops_of(loads)
        found["wrong"] += beside.result()["wrong"]
    return found | {"calls": calls, "stops": stops}


def check_loads(bench: Bench) -> Result:
    """Calls of other threads while long kernels are stopped. A call that waits for the kernel is
    inside the driver meanwhile: how often there were stops nevertheless is reported."""
    with sharing(MEMORY, copies=True) as share:
        runs = [call_beside(bench, share, calls) for calls in (*CALLS, ",".join(CALLS))]
    texts = [
        f"{run['calls']} {[run[call]['done'] for call in run['calls'].split(',')]} "
        f"longest {max(run[call]['longest_s'] for call in CALLS):.1f} s, {run['stops']} stops"
        for run in runs
    ]
    wrong = sum(run["wrong"] for run in runs)
    done = all(run[call]["done"] for run in runs for call in run["calls"].split(","))
    return {
        "good": wrong == 0 and done and any(run["stops"] for run in runs),
        "summary": f"{wrong} words wrong; {'; '.join(texts)}",
        "runs": runs,
    }


CHECKS: dict[str, Callable[[Bench], Result]] = {
    "service": partial(check_service, batch_ms=SWEEP_MS),
    "service_long": partial(check_service, batch_ms=300),
    "saturating": check_saturating,
    "shares": partial(share_out, asked=PAIR),
    "shares_waits": partial(share_out, asked=WAITS),
    "shares_small": partial(share_out, asked=SMALL),
    "shares_three": partial(share_out, asked=THREE),
    "shares_third": partial(share_out, asked=THIRD),
    **{name: partial(check_limit, asked=asked) for name, asked in LIMITS.items()},
    "shares_torch": partial(
        share_out, asked=(Asked(0.3, program="torch"), Asked(0.7, program="graph"))
    ),
    "shares_jax": partial(
        share_out, asked=(Asked(0.3, program="jax"), Asked(0.7, SWEEP_MS, QUEUED))
    ),
    "handoff": check_handoff,
    "moved": check_moved,
    **{name: partial(check_torch, name=name) for name in TORCH_STEPS},
    "exit": check_exit,
    "loads": check_loads,
}


def is_share(name: str) -> bool:
    return name.startswith(("shares", "limit")) and name != "shares_jax"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=",".join(CHECKS), help="names, with commas between")
    parser.add_argument("--gpu", type=int, default=0, help="index")
    parser.add_argument("--mib", type=int, default=64, help="of memory that a kernel sweeps")
    parser.add_argument("--seconds", type=float, default=6, help="of a timed part")
    parser.add_argument("--settle", type=float, default=4, help="seconds before it under gpu-lease")
    parser.add_argument("--long", type=float, default=10, help="seconds of a long kernel")
    parser.add_argument("--piece-mib", type=int, default=4096, help="of a job that does not fit")
    parser.add_argument("--cap", default="6GiB", help="of a device on which two do not fit")
    chosen = parser.parse_args()
    build_all("shares", "resident", "loads")
    bench = Bench(
        *(chosen.gpu, chosen.mib, chosen.seconds, chosen.settle, chosen.long),
        *(chosen.piece_mib, chosen.cap),
    )
    checks = {name: partial(check, bench) for name, check in CHECKS.items()}
    names = chosen.only.replace("SHARES", ",".join(n for n in CHECKS if is_share(n))).split(",")
    return run_checks(f"slices-{chosen.gpu}", checks, names)


if __name__ == "__main__":
    raise SystemExit(main())
