"""One job program of the chaos test: ranks that compute on the GPU, fork in mid-run, and verify.

Each rank works on a buffer of its own as tests.demo.job does and writes
`RESULT.RANK.json` when it is through: what it allocated, when it began and
ended, and whether every checksum was right. Without such a file it did not end
by itself. Exit status 3: a driver call failed, "error" has its words.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tests.emugpu.bindings
from tests.demo.job import Check, Gpu, GpuError, call
from tests.slurm.chaos_jobs import PROGRAM_BYTES

driver = tests.emugpu.bindings.driver
DRIVER_FAILED = 3
PR_SET_PDEATHSIG = 1


def write(path: Path, report: dict[str, Any]) -> None:
    """All or nothing: the rank may be killed at any moment."""
    half = path.with_suffix(".half")
    half.write_text(json.dumps(report))
    half.rename(path)


class MappingGpu(Gpu):
    """It creates its memory and maps it by itself."""

    def alloc(self, size: int) -> int:
        prop, access = driver.CUmemAllocationProp(), driver.CUmemAccessDesc()
        prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location = prop.location
        access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        at = int(call(driver.cuMemAddressReserve, size, 0, 0, 0))
        call(driver.cuMemMap, at, size, 0, call(driver.cuMemCreate, size, prop, 0), 0)
        call(driver.cuMemSetAccess, at, size, [access], 1)
        return at


class Child:
    """A forked child that tries to use the parent's context: the driver must refuse, not block.

    It lives on while the parent does and ends with it, however that ends.
    """

    def __init__(self) -> None:
        read, self.hold = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.hold)
            refused = driver.cuCtxSynchronize()[0] != driver.CUresult.CUDA_SUCCESS
            os.read(read, 1)
            os._exit(0 if refused else 1)
        os.close(read)

    def end(self) -> int:
        """Its exit status: 0 when the driver refused."""
        os.close(self.hold)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def run_program(path: Path) -> int:
    """A program that the job starts in mid-run, with a context of its own."""
    command = [sys.executable, "-m", "tests.slurm.chaos_job", "--bytes", str(PROGRAM_BYTES)]
    command += ["--piece", str(PROGRAM_BYTES), "--steps", "2", "--result", str(path)]
    return subprocess.run(command, check=False).returncode


def compute(gpu: Gpu, options: argparse.Namespace, path: Path) -> tuple[list[Check], list[int]]:
    """All steps, each a byte in RESULT.RANK.steps; checksums, and exit statuses of children."""
    checks: list[Check] = []
    forked: list[Child] = []
    ended: list[int] = []
    every = max(1, options.steps // 4)
    progress = path.with_suffix(".steps").open("ab", buffering=0)
    for step in range(options.steps):
        for piece in gpu.pieces:
            gpu.add(piece, 3, options.rounds)
        call(driver.cuCtxSynchronize)
        time.sleep(options.pause_ms / 1000)  # reading its next data, say
        if step % every == every - 1:
            checks.append(gpu.checksum(gpu.pieces[step % len(gpu.pieces)]))
        if step == options.fork_at:
            forked.append(Child())
        if step == options.run_at:
            ended.append(run_program(path.with_suffix(".child")))
        progress.write(b".")
    progress.close()
    checks += [gpu.checksum(piece) for piece in gpu.pieces]
    return checks, ended + [child.end() for child in forked]


def rank_main(options: argparse.Namespace, rank: int) -> int:
    path = options.result.with_name(f"{options.result.name}.{rank}.json")
    report: dict[str, Any] = {"pid": os.getpid(), "started_at": time.time()}
    try:
        gpu = MappingGpu() if options.maps else Gpu()
        gpu.allocate(options.bytes, options.piece)
        report |= {"allocated": options.bytes, "allocated_at": time.time()}
        checks, children = compute(gpu, options, path)
    except GpuError as fault:
        write(path, report | {"error": str(fault), "finished_at": time.time()})
        return DRIVER_FAILED
    right = sum(check.ok() for check in checks)
    report |= {"checks": len(checks), "right": right, "children": children}
    write(path, report | {"finished_at": time.time()})
    return 0 if right == len(checks) and not any(children) else 1


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bytes", type=int, required=True, help="buffer of each rank")
    parser.add_argument("--piece", type=int, required=True, help="bytes of one allocation")
    parser.add_argument("--maps", type=int, default=0, help="1: allocations by cuMemCreate")
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--pause-ms", type=float, default=0.0, help="after each step")
    parser.add_argument("--ranks", type=int, default=1, help="processes, forked before CUDA")
    parser.add_argument("--first-rank", type=int, default=0)
    parser.add_argument("--fork-at", type=int, default=-1, help="step after which it forks")
    parser.add_argument("--run-at", type=int, default=-1, help="step after which it runs another")
    parser.add_argument("--result", type=Path, required=True)
    return parser.parse_args()


def main() -> int:
    options = parse_arguments()
    ranks = range(options.first_rank, options.first_rank + options.ranks)
    children = []
    for rank in ranks[1:]:
        child = os.fork()
        if child == 0:
            # proctrack/linuxproc loses sight of children whose parent was killed.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            os._exit(rank_main(options, rank))
        children.append(child)
    worst = rank_main(options, ranks[0])
    for child in children:
        worst = worst or abs(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return worst


if __name__ == "__main__":
    raise SystemExit(main())
