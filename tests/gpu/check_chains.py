"""Chains on a real GPU: buffers by handle, and what dividing the GPU does.

`python -m tests.gpu.check_chains [--only NAME,...] [--gpu N]` on a machine with a GPU, as root.
Each check prints a line when it is known, and its parts before; writes chains-GPU.json in $OUT or
build/bench after each.

handle: what passing a handle costs (tests/bench/chains/parts/pair.py). passing-N: items a second
through N components by copies through the host, by CUDA IPC by hand, without gpu-lease and in a job
of it (ipc-job), by torch.multiprocessing, and by handle (chain_passing.py; in the same processes as
ipc-job, by turns), one process after the other on the GPU, and what the parts of an item take
(--times); passing-mps-N: the same for
components that are clients of one MPS server, so that none waits for its time slice. dlpack:
PyTorch, JAX and CuPy take a buffer. mps-N, slices-N: a chain of N components in one job, by what
the daemon keeps, and by how much the last component is faster so, in comparisons by turns: parts
of the multiprocessors under MPS (mps-N: by green contexts; affinity-N: by contexts with a number
of multiprocessors), or time slices. mps-unlike-2, -2-short, -4, -4-alike: chains of unlike
components: some fill the GPU with long blocks, and take less than half as long for an item as the
last one, which runs many small kernels one after the other; none of them uses memory.
again-unlike-2 and so on: the same chains of programs that do not know of parts and are started
again.

To try it on the emulated GPU: `python -m tests.gpu.emulated --model emu-h200-medium
tests.gpu.check_chains --only handle,passing-2,dlpack --sizes 1,16 --memory 900MiB --libraries
driver`, and `python -m tests.gpu.emulated --model emu-h200-mps tests.gpu.check_chains --only
mps-2,slices-2 --mib 1 --rounds 16 --memory 128MiB`.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from leased.api.client import ask
from tests.bench.chains.parts.optimiser import CHAINS, figures, searched
from tests.emugpu.mps_control import install
from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import (
    Job,
    JobFailed,
    Sharing,
    framework_python,
    on_gpu,
    sharing,
    show,
    stopping,
)
from tests.support.chain import COMPONENT, LIBRARY
from tests.support.work_dir import work_dir

# So that a trial takes half a second. The windows become longer where these are not steady.
HURRIED = (
    "leased.chains.optimiser.SETTLES_S=0.2",
    "leased.chains.optimiser.FIRST_S=0.3",
    "leased.monitors.device_monitor.LOOK_S=0.1",
)
UNLIKE = {  # see component.py
    "2": ("4:1056:1125us", "100:16:100us"),
    "2-short": ("30:1056:150us", "100:16:100us"),
    "4": ("2:1056:1000us", "50:16:100us", "2:1056:1000us", "100:16:100us"),
    "4-alike": (*3 * ("2:1056:750us",), "100:16:100us"),
}
WAYS = ("host", "ipc", "ipc-job", "torch", "ours")
IN_JOB = ("ipc-job", "ours")
LEAST_OF_HOST, LEAST_OF_IPC, LARGE_MIB = 10.0, 0.97, 64
PASSING_S = 120  # for one way: eight processes that import PyTorch take a while


def environment(chosen: argparse.Namespace) -> dict[str, str]:
    times = {"CHAIN_TIMES": "1"} if chosen.times else {}
    return on_gpu(chosen.gpu) | {"GPU_LEASE_CHAIN_LIBRARY": str(LIBRARY)} | times


def in_job(share: Sharing, mode: str, chosen: argparse.Namespace, *module: str) -> Job:
    command, env = framework_python("-m", *module), environment(chosen)
    if mode == "mps":
        del env["CUDA_VISIBLE_DEVICES"]  # the daemon says it, by the UUID
    return share.tenant(module[0], "memory:swap", command, env, str(chosen.gpu))


# -- buffers by handle ------------------------------------------------------------------


def handle(chosen: argparse.Namespace) -> Result:
    with sharing(chosen.memory) as share:
        size = str(max(chosen.sizes) << 20)
        arguments = (size, "10", str(chosen.handles))
        job = in_job(share, "slices", chosen, "tests.bench.chains.parts.pair", *arguments)
        found = job.result()
    us = max(found["handle_us"].values())
    times = found["host_s"] / found["handle_s"]
    summary = (
        f"{us:.1f} us, {times:.0f} times as fast as through the host, {found['leaked']} leaked"
    )
    return {"good": us <= 30 and not found["leaked"], "summary": summary, **found}


Rates = dict[str, dict[str, list[float]]]  # by way, and by MiB, of each window


def passing(mode: str, n: int, chosen: argparse.Namespace) -> Result:
    """By turns, all ways in each; the medians of them."""
    rates: Rates = {way: {str(mib): [] for mib in chosen.sizes} for way in chosen.ways}
    wrong = failed = 0
    label = f"passing{'-mps' if mode == 'mps' else ''}-{n}"
    with divided(mode, chosen) as share:
        for ways in _together(chosen.ways) * chosen.turns:
            try:
                found = passed(ways, mode, n, share, chosen)
            except JobFailed as fault:
                failed += 1
                print(f"FAILED: {fault}", flush=True)
                continue
            wrong += found.get("wrong", 0)
            for way in ways:
                seen = {mib: each[way] for mib, each in found["by_mib"].items()}
                show(f"{label} {way}", {mib: round(median(each), 1) for mib, each in seen.items()})
                for mib, each in seen.items():
                    rates[way][mib] += each
    of = {way: _ratios(rates, way) for way in rates if way != "ours"}
    good = not wrong and not failed
    for mib in (str(size) for size in chosen.sizes if size >= LARGE_MIB):
        good &= of.get("host", {}).get(mib, LEAST_OF_HOST) >= LEAST_OF_HOST
        by_hand = of.get("ipc-job", of.get("ipc", {}))
        good &= by_hand.get(mib, LEAST_OF_IPC) >= LEAST_OF_IPC
    summary = "by handle, of " + "; ".join(f"{way}: {ratios}" for way, ratios in of.items())
    medians = {way: {mib: median(v) for mib, v in each.items() if v} for way, each in rates.items()}
    return {"good": good, "summary": summary, "items_s": medians, "windows": rates, "wrong": wrong}


def _together(ways: Sequence[str]) -> list[list[str]]:
    """Those in a job are in the same one, by turns; each other one has processes of its own."""
    in_job = [way for way in ways if way in IN_JOB]
    return [[way] for way in ways if way not in in_job] + ([in_job] if in_job else [])


def passed(
    ways: Sequence[str], mode: str, n: int, share: Sharing, chosen: argparse.Namespace
) -> Result:
    """What chain_passing.py says of ways, in the same processes. by_mib: of each window."""
    windows = chosen.windows if len(ways) > 1 else 1
    names = [way.removesuffix("-job") for way in ways]
    each = [f"{name}:{mib}" for mib in chosen.sizes for _ in range(windows) for name in names]
    seconds = str(chosen.seconds / windows)
    module = ("tests.gpu.chain_passing", str(n), seconds, chosen.touch, ",".join(each))
    if ways[0] in IN_JOB:
        job = in_job(share, mode, chosen, *module)
    else:
        job = bare(ways[0], mode, share, chosen, *module)
    found = job.result(PASSING_S)
    if ways[0] in IN_JOB:  # as its epilog says; the next one needs its host memory
        ask(share.admin, {"op": "job_end", "job_id": job.number})
    if chosen.times:
        print(job.printed(), end="", flush=True)
    rates = iter(found["items_s"])
    by_mib: dict[str, dict[str, list[float]]] = {}
    for mib in chosen.sizes:
        of = by_mib[str(mib)] = {way: [] for way in ways}
        for _ in range(windows):
            for way in ways:
                of[way].append(next(rates))
    return found | {"by_mib": by_mib}


def bare(way: str, mode: str, share: Sharing, chosen: argparse.Namespace, *module: str) -> Job:
    """Without gpu-lease, on the same GPU."""
    env = environment(chosen)
    if mode == "mps":  # as the plugin gives it to jobs
        (device,) = (one for one in share.devices() if one["index"] == chosen.gpu)
        pipes = share.leased.run_dir / "mps" / device["uuid"]
        env |= {"CUDA_MPS_PIPE_DIRECTORY": str(pipes), "CUDA_VISIBLE_DEVICES": device["uuid"]}
    return Job.start(way, framework_python("-m", *module), env)


def _ratios(rates: Rates, way: str) -> dict[str, float]:
    """By handle, of the way: of windows that follow each other in the same processes, the median
    of their ratios; else of the medians."""
    found = {}
    for mib, ours in rates.get("ours", {}).items():
        other = rates[way][mib]
        if not ours or not other:
            continue
        if way in IN_JOB and len(ours) == len(other):
            found[mib] = round(median(one / by for one, by in zip(ours, other)), 3)
        else:
            found[mib] = round(median(ours) / median(other), 3)
    return found


def dlpack(chosen: argparse.Namespace) -> Result:
    with sharing(chosen.memory) as share:
        names = chosen.libraries.split(",")
        found = in_job(share, "slices", chosen, "tests.gpu.chain_dlpack", *names).result(120)
    good = all("absent" in one or (one.get("same") and one.get("right")) for one in found.values())
    return {"good": good, "summary": str(found), **found}


# -- dividing the GPU ----------------------------------------------------------------------


@contextmanager
def divided(mode: str, chosen: argparse.Namespace) -> Iterator[Sharing]:
    """A GPU that is shared by MPS, or by time slices."""
    if mode == "slices":
        with sharing(chosen.memory, hurried=HURRIED) as share:
            yield share
        return
    place = work_dir()
    real = shutil.which("nvidia-cuda-mps-control")
    program = install(place) if "EMUGPU_DIR" in os.environ else Path(real or "/missing")
    device, daemon = 'space = "mps"\n', f'mps_control = "{program}"\n'
    try:
        with sharing(chosen.memory, "", device, daemon=daemon, hurried=HURRIED) as share:
            try:
                yield share
            finally:
                _end_mps(share)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _end_mps(share: Sharing) -> None:
    """As the daemon does on a drained GPU."""
    for file in (share.leased.run_dir / "mps").glob("*/nvidia-cuda-mps-control.pid"):
        os.kill(int(file.read_text()), 15)


def optimised(
    mode: str, mib: int, kernels: Sequence[int | str], chosen: argparse.Namespace
) -> Result:
    sizes = map(str, (mib, chosen.rounds, *kernels))
    command = framework_python("-m", "tests.bench.chains.parts.pipeline", *sizes)
    parts = {"mps": "green", "affinity": "affinity"}.get(mode, "none")
    env = environment(chosen) | {"PARTS": parts}
    if mode == "again":
        env["STARTED_BY"] = str(COMPONENT)
    if mode != "slices":
        del env["CUDA_VISIBLE_DEVICES"]  # the daemon says it, by the UUID
    with divided(mode, chosen) as share:
        job = share.tenant("chain", "chain:check,memory:swap", command, env, str(chosen.gpu))
        with stopping(job):
            job.wait_ready()
            job.go()
            try:
                chain = searched(share.admin, chosen.gpu, chosen.patience)
            except RuntimeError as fault:
                raise job.failed(str(fault)) from None
    found = figures(chain)
    summary = f"{found['gain']:+.1%} by {found['division']} after {found['trials']} trials"
    good = found["trials"] <= found["bound"] and found["gain"] >= -0.01
    return {"good": good, "summary": summary, **found, "throughput": chain["trials"]}


def checks(chosen: argparse.Namespace) -> dict[str, Callable[[], Result]]:
    made: dict[str, Callable[[], Result]] = {"handle": partial(handle, chosen)}
    for mode, name in (("slices", "passing"), ("mps", "passing-mps")):
        made |= {f"{name}-{n}": partial(passing, mode, n, chosen) for n in CHAINS}
    made["dlpack"] = partial(dlpack, chosen)
    for mode in ("mps", "slices", "affinity"):
        made |= {
            f"{mode}-{n}": partial(optimised, mode, chosen.mib, kernels, chosen)
            for n, kernels in CHAINS.items()
        }
    for mode in ("mps", "again", "slices"):
        made |= {
            f"{mode}-unlike-{name}": partial(optimised, mode, 1, kernels, chosen)
            for name, kernels in UNLIKE.items()
        }
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="names, with commas between")
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--memory", default="32GiB", help="of the device")
    parser.add_argument("--sizes", default="1,64,256", help="of items, in MiB")
    parser.add_argument("--seconds", type=float, default=0.7, help="for each of them")
    parser.add_argument("--ways", default=",".join(WAYS), help="of passing items")
    parser.add_argument(
        "--touch", choices=("page", "whole"), default="page", help="of each item, by kernels"
    )
    parser.add_argument("--turns", type=int, default=3, help="of each way of passing items")
    parser.add_argument("--windows", type=int, default=5, help="of each way in a job, in each turn")
    parser.add_argument("--times", action="store_true", help="of the parts of an item")
    parser.add_argument("--handles", type=int, default=40000)
    parser.add_argument("--libraries", default="torch,jax,cupy", help="for dlpack")
    parser.add_argument("--patience", type=float, default=100.0, help="s, for a search")
    parser.add_argument("--mib", type=int, default=256, help="that a kernel passes over")
    parser.add_argument("--rounds", type=int, default=2, help="how often: 0.3 ms on an H200")
    chosen = parser.parse_args()
    chosen.sizes = [int(one) for one in chosen.sizes.split(",")]
    chosen.ways = chosen.ways.split(",")
    made = checks(chosen)
    only = chosen.only.split(",") if chosen.only else list(made)
    return run_checks(f"chains-{chosen.gpu}", made, only)


if __name__ == "__main__":
    raise SystemExit(main())
