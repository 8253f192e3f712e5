"""Shares of a GPU's time under this project, HAMi-core and XSched, in one run on one GPU.

`python -m tests.gpu.compare_shares [--hami DIR] [--xsched DIR]` on a machine with a GPU, as root.
The first DIR holds libvgpu.so, the second what XSched installs (bin/xserver, lib/). Programs that
always have kernels to run ask for 10:90 and 30:70 of the GPU; bare ones are divided by the driver.
What a program gets done is a part of what it does alone, right before and after: in the same
process, while the others wait. Under HAMi-core a program alone has no more than its part either, so
there it is what another, bare process of the program does; such processes differ by up to 12%.
Prints a table; writes compared-shares.json in $OUT or build/bench. Exit status 1 if a program
failed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tests.gpu.build import build
from tests.gpu.check_elastic import ALONE_S, MEMORY, Asked, Bench, Program, by_ratio, judged, rates
from tests.gpu.jobs import (
    Job,
    JobFailed,
    on_gpu,
    print_table,
    readable,
    sharing,
    stopping,
    write_report,
)
from tests.gpu.xsched import XSched
from tests.support.together import zip_strict

RATIOS = ((10, 90), (30, 70))
HAMI_LOCKS = Path("/tmp/vgpulock")  # where HAMi-core has its lock files, whatever one sets


class System(Protocol):
    """What divides the GPU. started() begins a program for each job, and ends what it needs.

    bounds_alone: a program that is alone has no more than its part either.
    """

    name: str
    bounds_alone: bool

    def started(self, jobs: Sequence[Asked], commands: Sequence[list[str]]) -> Any: ...


class Bare:
    name = "bare"
    bounds_alone = False

    def __init__(self, gpu: int):
        self.gpu = gpu

    @contextmanager
    def started(self, jobs: Sequence[Asked], commands: Sequence[list[str]]) -> Iterator[list[Job]]:
        yield [
            Job.start(job.program, command, on_gpu(self.gpu))
            for job, command in zip_strict(jobs, commands)
        ]


class Ours:
    bounds_alone = False

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
                for job, command in zip_strict(jobs, commands)
            ]


class HamiCore:
    name = "HAMi-core"
    bounds_alone = True

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
                for n, (job, command) in enumerate(zip_strict(jobs, commands))
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


class ByXSched:
    """timeslice_us: how long a queue of it may run; None: as it comes."""

    bounds_alone = False

    def __init__(self, installed: XSched, gpu: int, timeslice_us: int | None = None):
        self.name = "XSched PUP" + (f", slices of {timeslice_us} us" if timeslice_us else "")
        self.installed, self.gpu = installed, gpu
        self.timeslice = {"timeslice": timeslice_us} if timeslice_us else {}

    @contextmanager
    def started(self, jobs: Sequence[Asked], commands: Sequence[list[str]]) -> Iterator[list[Job]]:
        with self.installed.serving("PUP"):
            yield [
                Job.start(job.program, command, on_gpu(self.gpu) | self.settings(job))
                for job, command in zip_strict(jobs, commands)
            ]

    def settings(self, job: Asked) -> dict[str, str]:
        """The environment of a job."""
        return self.installed.environment(utilization=round(100 * job.wants), **self.timeslice)


def rate_of(program: Program) -> float:
    """What it gets done in a second while nobody else works."""
    program.begin(ALONE_S)
    counts = [second[0] for second in rates([program.result()], 1)]
    return sum(counts) / len(counts)


def rate_bare(command: list[str], gpu: int) -> float:
    """What a process of its own gets done in a second, bare and alone."""
    job = Job.start("alone", command, on_gpu(gpu))
    with stopping(job):
        return rate_of(Program(job))


def rates_alone(
    system: System, programs: Sequence[Program], commands: Sequence[list[str]], gpu: int
) -> list[float]:
    if system.bounds_alone:
        return [rate_bare(command, gpu) for command in commands]
    return [rate_of(program) for program in programs]


def measured(system: System, bench: Bench, jobs: Sequence[Asked], quantum: int) -> dict[str, Any]:
    """One run of jobs that begin together."""
    commands = [bench.command(job.program) for job in jobs]
    with system.started(jobs, commands) as started, stopping(*started):
        programs = [Program(job) for job in started]
        before = rates_alone(system, programs, commands, bench.gpu)
        for program in programs:
            program.begin(bench.seconds)
        time.sleep(bench.settle)
        results = [program.result() for program in programs]
        after = rates_alone(system, programs, commands, bench.gpu)
    pairs = list(zip_strict(before, after))
    alone = [(b + a) / 2 for b, a in pairs]
    found = judged(jobs, rates(results, bench.settle), alone, quantum)
    drift = max(abs(a / b - 1) for b, a in pairs)
    return {
        "system": system.name,
        "ms": jobs[0].program,
        "alone_s": [round(rate, 1) for rate in alone],
        "drift": round(drift, 4),
    } | found


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
    if chosen.xsched:
        installed = XSched(chosen.xsched)
        slices = (None, 1000 * chosen.quantum)
        systems += [ByXSched(installed, chosen.gpu, us) for us in slices]
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
    columns = ("system", "ms", "wants", "got", "error", "together", "drift")
    print_table(columns, [[run[column] for column in columns] for run in runs])
    return 1 if errors else 0


if __name__ == "__main__":
    raise SystemExit(main())
