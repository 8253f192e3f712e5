"""memory:swap on a real GPU: does it move at the link's speed, and lose nothing?

`python -m tests.gpu.check_swap [--only link,handoff,...] [--cap GIB]` on a
machine with a GPU, as root; gangs need two. The device is capped, and two jobs want 0.9 of it
each, by plain allocations, so for the driver nothing is oversubscribed. The host
needs as much memory as both jobs. Prints a line a check and a table; writes
swap-GPU.json in $OUT or build/bench. Exit status 1 if a check failed.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path

import pynvml

from leased import policy
from tests.gpu import commands
from tests.gpu.build import build, build_all
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import (
    Job,
    Sharing,
    finish_all,
    framework_python,
    on_gpu,
    run_together,
    sharing,
    stopping,
    touch_host_memory,
)
from tests.gpu.overlap import gaps_us, judge_files, merged, read_spans

GIB = 1 << 30
WANTS = 0.9  # of the capped device, each of two jobs
AT_LEAST = 0.85  # of what the link can do
STEADY, STEADY_MIB = 0.99, 8192
LINK_GIB, MANAGED_GIB = 8, 2
FASTEST_LINK = 512  # GiB/s, the most that the configuration takes
CONTEXT_MIB = 560  # of a process, a little more than it takes
MOVED = re.compile(r"(evicted|restored) (\d+) KiB, copied (\d+)")

# Small programs with a ballast: two of them do not fit into PAIR_CAP_GIB.
PAIR_CAP_GIB, BALLAST_MIB = 6, 3584
PAIRS = {"torch_eager": 1500, "torch_graph": 3000, "torch_expandable": 1500}
PAIRS |= {"jax_train": 80000, "cupy_math": 4000, "torch_async": 1500}  # steps
GANG_STEPS = 4000
STOPPED_S = 25.0  # after all are ready
UNANSWERED_S = 10.0  # for which a process waits for gpu-leased-copies
# JAX takes three quarters of the device at its start: two such programs do not fit.
JAX_CAP_GIB, JAX_STEPS = 16, 2000


@cache
def measure_link(gpu: int) -> Result:
    """What the link and the driver's own ways of moving memory do, in GiB/s and ms."""
    command = [str(build("link")), str(LINK_GIB), str(MANAGED_GIB)]
    return Job.start("link", command, on_gpu(gpu)).result()


def check_link(chosen: argparse.Namespace) -> Result:
    found = measure_link(chosen.gpu)
    return {"good": True, "summary": str(found), **found}


@contextmanager
def swapping(
    cap_gib: float,
    link_gib_s: float = 0,
    policy_name: str = policy.DEFAULT,
    *,
    copies: bool = False,
) -> Iterator[Sharing]:
    """The daemon with a capped device, where jobs may swap as much as they like.

    link_gib_s: of the link, where it shall not be found out. copies: with gpu-leased-copies.
    """
    limits = 'swap_host = "4096GiB"\n'  # jobs that have ended count until the end
    os.environ["GPU_LEASE_DEBUG"] = "1"  # tells what moved
    device = f'link_gib_s = {link_gib_s:g}\npolicy = "{policy_name}"\n'
    with sharing(f"{cap_gib:g}GiB", limits, device, copies=copies) as share:
        yield share


# -- handoffs ------------------------------------------------------------------------


def start_swappers(share: Sharing, chosen: argparse.Namespace, files: Sequence[Path]) -> list[Job]:
    mib = int(WANTS * chosen.cap * 1024)
    return [
        share.tenant(
            f"swapper {n}",
            f"tq:{chosen.quantum:g},lock:auto,memory:swap",
            [str(build("swapper")), str(mib), str(chosen.seconds), str(file), "ready"],
            on_gpu(chosen.gpu),
            str(chosen.gpu),
        )
        for n, file in enumerate(files)
    ]


@contextmanager
def filled(chosen: argparse.Namespace) -> Iterator[None]:
    """With --full another process has the device but for the cap and the jobs' contexts."""
    if not chosen.full:
        yield
        return
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(chosen.gpu)
    free_mib = pynvml.nvmlDeviceGetMemoryInfo(handle).free >> 20
    pynvml.nvmlShutdown()
    mib = free_mib - int(chosen.cap * 1024) - 3 * CONTEXT_MIB
    with tempfile.NamedTemporaryFile() as file:
        command = [str(build("swapper")), str(mib), "0", file.name, "ready"]
        job = Job.start("what fills the device", command, on_gpu(chosen.gpu))
        with stopping(job):
            job.wait_ready()
            yield


def moved_bytes(jobs: Sequence[Job], what: str) -> list[int]:
    """Bytes of every eviction or restore that the jobs' interposers told of, larger ones only."""
    lines = [MOVED.findall(job.said()) for job in jobs]
    found = [int(copied) << 10 for said in lines for kind, _, copied in said if kind == what]
    return [n for n in found if n > max(found) / 2]


def check_handoff(chosen: argparse.Namespace) -> Result:
    """The time of a handoff against what the link needs for as many bytes each way."""
    link = (chosen.duplex or measure_link(chosen.gpu)["duplex_gib_s"]) / 2
    with (
        tempfile.TemporaryDirectory() as directory,
        filled(chosen),
        # As if a handoff took no time: quanta are not stretched, and there are many.
        swapping(chosen.cap, FASTEST_LINK) as share,
    ):
        touch_host_memory(int(2 * WANTS * chosen.cap * GIB))
        files = [Path(directory) / f"{n}" for n in range(2)]
        jobs = start_swappers(share, chosen, files)
        results = run_together(jobs, 240 + 3 * chosen.seconds)
        gaps = [us / 1e6 for us in gaps_us(*(merged(read_spans(file)) for file in files))]
        verdict = judge_files(*files)
        out, into = (statistics.median(moved_bytes(jobs, k)) for k in ("evicted", "restored"))
        usage = [share.usage(job) for job in jobs]
    # At the first one host memory is still new, at the last one the other job ends.
    seconds = statistics.median(gaps[1:-1] or gaps)
    ratio = max(out, into) / (link * GIB) / seconds
    wrong = sum(result["wrong_words"] for result in results)
    return {
        "good": not wrong and not verdict.overlaps and ratio >= AT_LEAST,
        "summary": f"{len(gaps)} handoffs of {into / GIB:.1f} GiB in {seconds:.3f} s: "
        f"{ratio:.3f} of the link both ways; {wrong} words wrong",
        "overlaps": verdict.overlaps,
        "bytes_out": out,
        "bytes_in": into,
        "seconds": seconds,
        "gaps_s": [round(gap, 4) for gap in gaps],
        "link_limit_s": max(out, into) / (link * GIB),
        "ratio": round(ratio, 4),
        "jobs": results,
        "said": [job.said()[-6000:] for job in jobs],
        "usage": usage,
    }


# -- speed while nothing moves -----------------------------------------------------------


def check_steady(chosen: argparse.Namespace) -> Result:
    """A job alone, by turns bare and with memory:swap: its steps per second."""
    rates: dict[str, list[float]] = {"bare": [], "swap": []}
    with tempfile.NamedTemporaryFile() as file, swapping(chosen.cap) as share:
        command = [str(build("swapper")), str(STEADY_MIB), "2", file.name]
        env = on_gpu(chosen.gpu)
        for _ in range(3):
            rates["bare"].append(Job.start("swapper, bare", command, env).result()["steps_s"])
            job = share.tenant("swapper", "memory:swap", command, env, str(chosen.gpu))
            rates["swap"].append(job.result()["steps_s"])
    ratio = statistics.median(rates["swap"]) / statistics.median(rates["bare"])
    return {"good": ratio >= STEADY, "summary": f"{ratio:.4f} of bare: {rates}", "rates": rates}


# -- results of two jobs are those of one ----------------------------------------------


def start_pair(share: Sharing, name: str, gpu: int) -> list[Job]:
    """A program bare, and two of it by turns."""
    command = commands.workload(name, 0, PAIRS[name], ballast=BALLAST_MIB)
    env = on_gpu(gpu) | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.85"}
    alone = Job.start(f"{name}, bare", command, env | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.05"})
    options = "tq:1,lock:on,memory:swap"
    return [
        alone,
        *(share.tenant(f"{name} {n} of two", options, command, env, str(gpu)) for n in range(2)),
    ]


def judge_pair(share: Sharing, name: str, jobs: Sequence[Job]) -> Result:
    results = finish_all(jobs)
    moved = [share.usage(job)["moved_bytes"] / GIB for job in jobs[1:]]
    equal = len({result["digest"] for result in results}) == 1
    return {
        "good": equal and min(moved) > 1,
        "summary": f"{name}: digests equal: {equal}, GiB moved {moved[0]:.0f} and {moved[1]:.0f}",
        "jobs": results,
        "usage": [share.usage(job) for job in jobs[1:]],
    }


def check_pairs(chosen: argparse.Namespace) -> Result:
    """All programs at once, so that each one's turn comes between others'."""
    names = chosen.programs.split(",") if chosen.programs else list(PAIRS)
    with swapping(PAIR_CAP_GIB) as share:
        jobs = {name: start_pair(share, name, chosen.gpu) for name in names}
        with stopping(*(job for each in jobs.values() for job in each)):
            found = {name: judge_pair(share, name, each) for name, each in jobs.items()}
    return {
        "good": all(result["good"] for result in found.values()),
        "summary": "; ".join(result["summary"] for result in found.values()),
        **found,
    }


def check_jax(chosen: argparse.Namespace) -> Result:
    """Two JAX programs with JAX's own settings, 12 GiB each on 16: hands change, bytes move."""
    command = commands.workload("jax_defaults", 0, JAX_STEPS)
    with swapping(JAX_CAP_GIB) as share:
        env = on_gpu(chosen.gpu)
        limited = env | {"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.1"}
        alone = Job.start("jax, bare", command, limited).result()
        jobs = [
            share.tenant(f"jax {n} of two", "tq:1,memory:swap", command, env, str(chosen.gpu))
            for n in range(2)
        ]
        results = finish_all(jobs)
        usage = [share.usage(job) for job in jobs]
    equal = {result["digest"] for result in results} == {alone["digest"]}
    moved = [used["moved_bytes"] / GIB for used in usage]
    turns = [used["handoffs"] for used in usage]
    return {
        "good": equal and min(moved) > JAX_CAP_GIB and min(turns) > 1,
        "summary": f"digests equal: {equal}, handoffs {turns}, GiB moved {moved[0]:.0f} and "
        f"{moved[1]:.0f}, s waited {[used['wait_s'] for used in usage]}, "
        f"s computed {[r['digest_s'] for r in (alone, *results)]}",
        "bare": alone,
        "jobs": results,
        "usage": usage,
    }


def check_gangs(chosen: argparse.Namespace) -> Result:
    """Two trainings over several GPUs at once, which all swap when the gang's turn comes."""
    command = framework_python("-m", "tests.gpu.ddp", "--seconds", "1")
    command += ["--steps", str(GANG_STEPS)]
    command += ["--ballast", str(BALLAST_MIB)]
    with swapping(PAIR_CAP_GIB) as share:
        gpus = chosen.gang or ",".join(str(device["index"]) for device in share.devices())
        env = {"CUDA_VISIBLE_DEVICES": gpus}
        alone = Job.start("ddp, bare", command, env).result()
        options = "tq:1,lock:on,memory:swap"
        jobs = [share.tenant(f"ddp {n} of two", options, command, env, gpus) for n in range(2)]
        results = finish_all(jobs)
        usage = [share.usage(job) for job in jobs]
    equal = {result["digest"] for result in results} == {alone["digest"]}
    moved = [used["moved_bytes"] / GIB for used in usage]
    return {
        "good": equal and min(moved) > 1,
        "summary": f"GPUs {gpus}: digests equal: {equal}, GiB moved on the first "
        f"{moved[0]:.0f} and {moved[1]:.0f}",
        "bare": alone,
        "jobs": results,
        "usage": usage,
    }


# -- killed in mid-swap ------------------------------------------------------------------


def check_killed(chosen: argparse.Namespace) -> Result:
    """One of two is killed while memory moves: the other goes on, right and with all of its own."""
    with tempfile.TemporaryDirectory() as directory, swapping(chosen.cap / 4) as share:
        small = argparse.Namespace(**vars(chosen) | {"cap": chosen.cap / 4, "seconds": 8})
        files = [Path(directory) / f"{n}" for n in range(2)]
        jobs = start_swappers(share, small, files)
        with stopping(*jobs):
            for job in jobs:
                job.wait_ready()
            for job in jobs:
                job.go()
            while not MOVED.findall(jobs[0].said()):
                jobs[1].check_running()
            os.killpg(jobs[0].process.pid, signal.SIGKILL)
            result = jobs[1].result()
    return {
        "good": result["wrong_words"] == 0,
        "summary": f"the other made {result['steps']} steps, {result['wrong_words']} words wrong",
        "job": result,
    }


# -- gpu-leased-copies stands still -------------------------------------------------------


@contextmanager
def stopped_copies(share: Sharing) -> Iterator[None]:
    assert share.keeper is not None
    os.kill(share.keeper.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(share.keeper.pid, signal.SIGCONT)


def check_stopped(chosen: argparse.Namespace) -> Result:
    """gpu-leased-copies does not answer before the first handoff and for some after it: jobs use
    host memory of their own, lose nothing, and nobody stands still for much longer than the ten
    seconds for which an answer is waited for."""
    small = argparse.Namespace(**vars(chosen) | {"cap": chosen.cap / 4, "seconds": 40})
    with tempfile.TemporaryDirectory() as directory, swapping(small.cap, copies=True) as share:
        files = [Path(directory) / f"{n}" for n in range(2)]
        begun = time.monotonic()
        with ExitStack() as stopped:
            stopped.enter_context(stopped_copies(share))
            jobs = start_swappers(share, small, files)
            with stopping(*jobs):
                for job in jobs:
                    job.wait_ready()
                ready_s = time.monotonic() - begun
                for job in jobs:
                    job.go()
                time.sleep(STOPPED_S)
                stopped.close()
                results = finish_all(jobs)
        gaps = [us / 1e6 for us in gaps_us(*(merged(read_spans(file)) for file in files))]
    wrong = sum(result["wrong_words"] for result in results)
    return {
        "good": not wrong and max(gaps) < UNANSWERED_S + 5,
        "summary": f"ready after {ready_s:.1f} s; {len(gaps)} handoffs, at most {max(gaps):.2f} s "
        f"in which nobody computed, {statistics.median(gaps):.3f} s in the middle; "
        f"{wrong} words wrong",
        "ready_s": ready_s,
        "gaps_s": gaps,
        "jobs": results,
        "said": [job.said()[-6000:] for job in jobs],
    }


CHECKS = {
    "link": check_link,
    "handoff": check_handoff,
    "steady": check_steady,
    "pairs": check_pairs,
    "jax": check_jax,
    "killed": check_killed,
    "stopped": check_stopped,
    "gangs": check_gangs,
}
ON_ONE_GPU = "link,handoff,steady,pairs,jax,killed,stopped"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default=ON_ONE_GPU, help="names, with commas between")
    parser.add_argument("--cap", type=float, default=40.0, help="GiB of the device")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=40.0, help="of each job in a handoff")
    parser.add_argument("--quantum", type=float, default=3.0, help="seconds")
    parser.add_argument("--duplex", type=float, default=0, help="GiB/s both ways, if known")
    parser.add_argument("--full", action="store_true", help="the rest of the device is taken")
    parser.add_argument("--gang", default="", help="GPUs of gangs, with commas between; all")
    parser.add_argument("--programs", default="", help="of pairs, with commas between")
    chosen = parser.parse_args()
    build_all("link", "swapper")
    checks = {name: partial(check, chosen) for name, check in CHECKS.items()}
    return run_checks(f"swap-{chosen.gpu}", checks, chosen.only.split(","))


if __name__ == "__main__":
    raise SystemExit(main())
