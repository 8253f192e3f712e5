"""Shares of a GPU's time under this project, HAMi-core and XSched, in one run on one GPU.

`python -m tests.gpu.compare_shares [--hami DIR] [--xsched DIR]` on a machine with a GPU, as root.
The first DIR holds libvgpu.so, the second what XSched installs (bin/xserver, lib/). Programs that
always have kernels to run ask for 10:90 and 30:70 of the GPU; bare ones are divided by the driver.
What a program gets done is a part of what the same program gets done bare and alone, measured right
before and after, since under HAMi-core a program alone has no more than its part either.
Prints a table; writes compared-shares.json in $OUT or build/bench. Exit status 1 if a program
failed.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.gpu.build import build
from tests.gpu.check_elastic import ALONE_S, MEMORY, Asked, Bench, Program, by_ratio, judged, rates
from tests.gpu.jobs import (
    ROOT,
    Job,
    JobFailed,
    on_gpu,
    print_table,
    sharing,
    stopping,
    write_report,
)
from tests.slurm.processes import Daemon

RATIOS = ((10, 90), (30, 70))
HAMI_LOCKS = Path("/tmp/vgpulock")  # where HAMi-core has its lock files, whatever one sets
XSCHED_PORT = 50000


class System(Protocol):
    """What divides the GPU. started() begins a program for each job, and ends what it needs."""

    name: str

    def started(self, jobs: Sequence[Asked], commands: Sequence[list[str]]) -> Any: ...


class Bare:
    name = "bare"

    def __init__(self, gpu: int):
        self.gpu = gpu

    @contextmanager
    def started(self, jobs: Sequence[Asked], commands: Sequence[list[str]]) -> Iterator[list[Job]]:
        yield [
            Job.start(job.program, command, on_gpu(self.gpu))
            for job, command in zip(jobs, commands, strict=True)
        ]


class Ours:
    def __init__(self, quantum_ms: int, gpu: int):
        self.gpu = gpu
        self.name = f"ours, tq:{quantum_ms}ms"
        self.options = f"tq:{quantum_ms}ms,lock:on"

    @contextmanager
    def started(self, jobs: Sequence[Asked], commands: Sequence[list[str]]) -> Iterator[list[Job]]:
        with sharing(MEMORY) as share:
            yield [
                share.tenant(
                    job.program,
                    f"{job.options},{self.options}",
                    command,
                    on_gpu(self.gpu),
                    str(self.gpu),
                )
                for job, command in zip(jobs, commands, strict=True)
            ]


class HamiCore:
    name = "HAMi-core"

    def __init__(self, directory: Path, gpu: int):
        self.gpu = gpu
        self.library = readable(directory / "libvgpu.so")

    @contextmanager
    def started(self, jobs: Sequence[Asked], commands: Sequence[list[str]]) -> Iterator[list[Job]]:
        HAMI_LOCKS.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as caches:
            yield [
                Job.start(
                    job.program, command, on_gpu(self.gpu) | self.settings(job, f"{caches}/{n}")
                )
                for n, (job, command) in enumerate(zip(jobs, commands, strict=True))
            ]

    def settings(self, job: Asked, cache: str) -> dict[str, str]:
        """The environment of a job. cache: a file of its own."""
        return {
            "LD_PRELOAD": str(self.library),
            "CUDA_REDIRECT": str(self.library),
            "GPU_CORE_UTILIZATION_POLICY": "FORCE",
            "CUDA_DEVICE_SM_LIMIT": str(round(100 * job.wants)),
            "CUDA_DEVICE_MEMORY_LIMIT": MEMORY.lower().removesuffix("ib"),
            "CUDA_DEVICE_MEMORY_SHARED_CACHE": cache,
        }


class XSched:
    name = "XSched PUP"

    def __init__(self, directory: Path, gpu: int):
        self.gpu = gpu
        self.server = readable(directory / "bin" / "xserver")
        self.libraries = directory / "lib"

    @contextmanager
    def started(self, jobs: Sequence[Asked], commands: Sequence[list[str]]) -> Iterator[list[Job]]:
        log = ROOT / "build" / "bench" / "xserver.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        server = Daemon.start("xserver", [str(self.server), "PUP", str(XSCHED_PORT)], log)
        try:
            yield [
                Job.start(job.program, command, on_gpu(self.gpu) | self.settings(job))
                for job, command in zip(jobs, commands, strict=True)
            ]
        finally:
            server.stop()

    def settings(self, job: Asked) -> dict[str, str]:
        """The environment of a job."""
        driver = str(driver_file())
        path = ":".join(filter(None, [str(self.libraries), os.environ.get("LD_LIBRARY_PATH")]))
        return {
            "LD_LIBRARY_PATH": path,
            "XSCHED_CUDA_LIB": driver,
            "CUXTRA_CUDA_LIB": driver,
            "XSCHED_SCHEDULER": "GLB",
            "XSCHED_AUTO_XQUEUE": "ON",
            "XSCHED_AUTO_XQUEUE_LEVEL": "1",
            "XSCHED_AUTO_XQUEUE_UTILIZATION": str(round(100 * job.wants)),
        }


def readable(path: Path) -> Path:
    if not os.access(path, os.R_OK):
        raise SystemExit(f"compare_shares: cannot read {path}: name the directory that has it")
    return path.resolve()


def driver_file() -> Path:
    """The libcuda.so.1 that programs here load."""
    ctypes.CDLL("libcuda.so.1")
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "libcuda.so" in path:
            return Path(path)
    raise SystemExit("compare_shares: the driver's libcuda.so.1 is not in this process' memory map")


def rate_alone(command: list[str], gpu: int) -> float:
    """What a program gets done in a second, bare and alone."""
    job = Job.start("alone", command, on_gpu(gpu))
    with stopping(job):
        program = Program(job)
        program.begin(ALONE_S)
        counts = [second[0] for second in rates([program.result()], 1)]
    return sum(counts) / len(counts)


def measured(system: System, bench: Bench, jobs: Sequence[Asked], quantum: int) -> dict[str, Any]:
    """One run of jobs that begin together."""
    commands = [bench.command(job.program) for job in jobs]
    before = rate_alone(commands[0], bench.gpu)
    with system.started(jobs, commands) as started, stopping(*started):
        programs = [Program(job) for job in started]
        for program in programs:
            program.begin(bench.seconds)
        time.sleep(bench.settle)
        results = [program.result() for program in programs]
    alone = (before + rate_alone(commands[0], bench.gpu)) / 2
    counts = rates(results, bench.settle)
    found = judged(jobs, counts, [alone] * len(jobs), quantum)
    return {"system": system.name, "ms": jobs[0].program, "alone_s": round(alone, 1)} | found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--hami", type=Path, help="directory of HAMi-core's libvgpu.so")
    parser.add_argument("--xsched", type=Path, help="directory into which XSched was installed")
    parser.add_argument("--kernel", choices=("add", "spin"), default="add")
    parser.add_argument("--lengths", default="0.1,20", help="ms of kernels, with commas between")
    parser.add_argument("--quantum", type=int, default=100, help="ms, of this project")
    parser.add_argument("--seconds", type=float, default=16, help="of each run")
    parser.add_argument("--settle", type=int, default=3, help="seconds of it that do not count")
    parser.add_argument("--gpu", type=int, default=0, help="index")
    chosen = parser.parse_args()
    systems: list[System] = [Bare(chosen.gpu), Ours(chosen.quantum, chosen.gpu)]
    systems += [HamiCore(chosen.hami, chosen.gpu)] if chosen.hami else []
    systems += [XSched(chosen.xsched, chosen.gpu)] if chosen.xsched else []
    build("shares")
    bench = Bench(chosen.kernel, chosen.seconds, chosen.settle, [chosen.quantum], chosen.gpu)
    runs: list[dict[str, Any]] = []
    errors: list[str] = []
    for length in chosen.lengths.split(","):
        for ratio in RATIOS:
            jobs = by_ratio([length] * len(ratio), ratio)
            for system in systems:
                try:
                    runs.append(measured(system, bench, jobs, chosen.quantum))
                except JobFailed as fault:
                    errors.append(f"{system.name}: {fault}")
                    print(f"FAILED under {system.name}: {fault}", flush=True)
                write_report("compared-shares", {"runs": runs, "errors": errors})
    columns = ("system", "ms", "wants", "got", "error", "together", "alone_s")
    print_table(columns, [[run[column] for column in columns] for run in runs])
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
