"""Programs that nobody here wrote: bare, shared, and shared where two of them do not fit.

`python -m tests.gpu.check_programs LIST.toml [--gpu N] [--part 1/2]` on a machine with a GPU, as
root. Every table [[program]] of the list has

    name       what the report calls it
    command    a list; "python" stands for this Python
    directory  where it runs, from the list's own directory
    result     regular expressions; all that they find in its output is its result
    env        variables (optional)
    rounds     false: run it once bare and once shared (optional)

Each runs twice bare and twice as a job alone, by turns, and then as two jobs at once on a device
with room for 1.4 times what one had. Results are to be equal; a program whose two bare runs
differ is reported as such. One more bare run counts the driver's calls of all its processes by
CUPTI: their number times what the interposer adds to each (call_cost.cu) is the most that it adds,
as a part of the time from the first call to the last. Functions whose cost is not measured are
named. The check `start` measures what it costs to become a job, which a process pays once.

Several may run at once on one machine, each with a GPU and a part of the list: each has its own
daemon and its own report, programs-GPU.json, with a part programs-GPU-1of2.json. Build first:
`python -m tests.gpu.build trivial call_cost count_calls`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from leased.base import toml_file
from leased.base.errors import Refused
from tests.gpu.build import build_all
from tests.gpu.checks import Result, run_checks_of, status_of
from tests.gpu.jobs import (
    Job,
    JobFailed,
    Sharing,
    on_gpu,
    print_table,
    python,
    sharing,
    show,
    stopping,
)
from tests.gpu.speed.becoming import measure_becoming
from tests.gpu.speed.calls import measure_costs
from tests.gpu.speed.counting import CannotCount, Counted, injected, read_counts
from tests.gpu.speed.whole_programs import ByCalls, bound

GIB = 1 << 30
LIMIT_S = 120.0
ALONE_GIB = 24
ROOM = 1.4  # of what one program had at most: two do not fit
SMALLEST_GIB = 0.25
STARTS = 20
# What stands before a job's command, without the registration: a bare run takes as long to begin.
BEFORE_BARE = """
import subprocess, sys
from tests.support import tenant
sys.exit(subprocess.run(sys.argv[1:], check=False).returncode)
"""
OPTIONS = "tq:1,memory:swap"
LIMITS = 'swap_host = "4096GiB"\n'


@dataclass(frozen=True)
class Program:
    name: str
    command: list[str]
    directory: Path
    result: list[str]
    env: dict[str, str] = field(default_factory=dict)
    rounds: bool = True

    def line(self) -> list[str]:
        command = [sys.executable if word == "python" else word for word in self.command]
        given = [f"{name}={value}" for name, value in self.env.items()]
        return ["env", f"--chdir={self.directory}", *given, *command]


def read_list(path: Path) -> list[Program]:
    """The programs of a list. SystemExit names what is wrong with it."""
    try:
        tables = toml_file.parse(path.read_bytes())["program"]
        return [
            Program(**table | {"directory": path.parent.resolve() / table["directory"]})
            for table in tables
        ]
    except (OSError, KeyError, TypeError, Refused) as fault:
        raise SystemExit(f"{path} is not a list of programs: {fault!r}") from None


@dataclass(frozen=True)
class Run:
    seconds: float
    result: tuple[str, ...]


def wait(job: Job, program: Program, began: float) -> Run:
    """Its time from `began` on, and its result. JobFailed: it failed or printed none."""
    job.finish(LIMIT_S)
    seconds = time.monotonic() - began
    job.out.seek(0)
    said = job.out.read() + job.said()
    found = tuple(
        " ".join(match) if isinstance(match, tuple) else match
        for pattern in program.result
        for match in re.findall(pattern, said, re.MULTILINE)
    )
    if not found:
        raise job.failed(f"printed nothing like {program.result}")
    return Run(seconds, found)


@contextmanager
def capped(gib: float) -> Iterator[Sharing]:
    with sharing(f"{gib:.3f}GiB", LIMITS) as share:
        yield share


def bare_line(program: Program) -> list[str]:
    return python("-c", BEFORE_BARE, *program.line())


def run_bare(program: Program, gpu: int) -> Run:
    job = Job.start(f"{program.name}, bare", bare_line(program), on_gpu(gpu))
    with stopping(job):
        return wait(job, program, job.started)


def count_bare(program: Program, gpu: int) -> tuple[Counted, float]:
    """What its processes called in a run of their own, and how long that took."""
    folder = Path(tempfile.mkdtemp(prefix="calls-"))
    try:
        env = on_gpu(gpu) | injected(folder)
        job = Job.start(f"{program.name}, counted", bare_line(program), env)
        with stopping(job):
            seconds = wait(job, program, job.started).seconds
        return read_counts(folder), seconds
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def find_by_calls(program: Program, gpu: int, bare_s: float, costs: Mapping[str, float]) -> ByCalls:
    """The most that calls cost it, or why that is not known: it is no fault of the program."""
    try:
        counted, seconds = count_bare(program, gpu)
    except (CannotCount, JobFailed) as fault:
        print(f"{program.name} was not counted: {fault}", flush=True)
        return ByCalls(why=str(fault).splitlines()[0])
    return bound(counted, seconds, bare_s, costs)


def tenant(share: Sharing, program: Program, gpu: int) -> Job:
    return share.tenant(program.name, OPTIONS, program.line(), on_gpu(gpu), str(gpu))


def run_shared(share: Sharing, program: Program, gpu: int) -> tuple[Run, int]:
    """Alone as a job; and the most bytes that it had."""
    job = tenant(share, program, gpu)
    with stopping(job):
        return wait(job, program, job.started), int(share.usage(job)["peak_bytes"])


def run_two(program: Program, gpu: int, peak: int) -> tuple[list[Run], list[dict[str, Any]]]:
    """Two at once with too little room; their runs and their usage."""
    with capped(max(SMALLEST_GIB, ROOM * peak / GIB)) as share:
        jobs = [tenant(share, program, gpu) for _ in range(2)]
        with stopping(*jobs):
            runs = [wait(job, program, job.started) for job in jobs]
            return runs, [share.usage(job) for job in jobs]


@dataclass
class Found:
    """What the runs of a program gave."""

    bare: list[Run] = field(default_factory=list)
    shared: list[Run] = field(default_factory=list)
    two: list[Run] = field(default_factory=list)
    peak: int = 0
    usage: list[dict[str, Any]] = field(default_factory=list)  # of the two

    @property
    def repeatable(self) -> bool:
        return len({run.result for run in self.bare}) == 1

    @property
    def equal(self) -> bool:
        return {run.result for run in (*self.shared, *self.two)} == {self.bare[0].result}

    @property
    def bare_s(self) -> float:
        return min(run.seconds for run in self.bare)

    @property
    def verdict(self) -> str:
        return "equal" if self.equal else "NOT EQUAL" if self.repeatable else "differs bare as well"


def kept(run: Run, found: Found) -> tuple[str, ...]:
    """What the report keeps of a run's result: all of it where results differ."""
    return run.result[-3:] if found.equal else run.result


def run_all(program: Program, gpu: int) -> Found:
    found = Found()
    with capped(ALONE_GIB) as share:
        for _ in range(2 if program.rounds else 1):
            found.bare.append(run_bare(program, gpu))
            run, most = run_shared(share, program, gpu)
            found.shared.append(run)
            found.peak = max(found.peak, most)
    found.two, found.usage = run_two(program, gpu, found.peak)
    return found


def summary(found: Found, by_calls: ByCalls) -> str:
    ratio = min(run.seconds for run in found.shared) / found.bare_s
    moved = [round(used["moved_bytes"] / GIB, 2) for used in found.usage]
    return (
        f"{found.verdict}, {found.bare_s:.1f} s bare, shared {ratio:.3f} of it; by calls "
        f"{by_calls.words()}; two on {ROOM * found.peak / GIB:.2f} GiB: "
        f"{max(run.seconds for run in found.two):.1f} s, "
        f"handoffs {[used['handoffs'] for used in found.usage]}, GiB moved {moved}"
    )


def check_program(program: Program, gpu: int, costs: Mapping[str, float]) -> Result:
    found = run_all(program, gpu)
    by_calls = find_by_calls(program, gpu, found.bare_s, costs)
    runs = {"bare": found.bare, "shared": found.shared, "two": found.two}
    return {
        "good": found.equal or not found.repeatable,
        "summary": summary(found, by_calls),
        "verdict": found.verdict,
        "equal": found.equal,
        "repeatable": found.repeatable,
        **{f"{way}_s": [run.seconds for run in of] for way, of in runs.items()},
        "by_calls": by_calls.report(),
        "peak_bytes": found.peak,
        "usage": found.usage,
        "results": {way: [kept(run, found) for run in of] for way, of in runs.items()},
        "results_of_a_run": len(found.bare[0].result),
    }


def check_start(gpu: int) -> Result:
    """What it costs to become a job: once for each process, whatever it does then."""
    with capped(ALONE_GIB) as share:
        found = measure_becoming(share, OPTIONS, gpu, STARTS)
    low, high = found["added_ms_range"]
    words = (
        f"a process of a job takes {found['added_ms']:.1f} ms more ({low:.1f} to {high:.1f}; "
        f"{found['bare_ms']:.0f} ms bare); a step registers in {found['register_ms']:.1f} ms"
    )
    return {"good": True, "summary": words, **found}


def costs_of_calls(gpu: int) -> dict[str, float]:
    """ns that the interposer adds to a call of each kind. None are known: it says why."""
    try:
        with capped(ALONE_GIB) as share:
            costs = measure_costs(share, OPTIONS, gpu, os.sched_getaffinity(0))
    except JobFailed as fault:
        print(f"FAILED: {fault}", flush=True)
        return {}
    show("ns that the interposer adds to a call", costs)
    return costs


def row_of(name: str, result: Result) -> list[object]:
    if "by_calls" not in result:
        return [name, result["summary"][:60], *[None] * 7]
    by_calls, bare = result["by_calls"], min(result["bare_s"])
    return [
        name,
        result["verdict"],
        f"{bare:.1f}",
        f"{min(result['shared_s']) / bare:.3f}",
        by_calls["calls"],
        f"{by_calls['span']:.5f}" if by_calls["span"] else by_calls["why"],
        " ".join(f"{name} ({n})" for name, n in by_calls["unknown"].items()) or None,
        f"{max(result['two_s']):.1f}",
        ", ".join(str(used["handoffs"]) for used in result["usage"]),
    ]


def print_programs(results: Mapping[str, Result]) -> None:
    head = ["program", "results", "bare, s", "shared", "calls", "at most, by calls"]
    head += ["not measured", "two, s", "handoffs"]
    print_table(head, [row_of(name, result) for name, result in results.items()])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--part", default="1/1", help="1/2: every second program from the first on")
    parser.add_argument("--only", default="", help="names, with commas between")
    chosen = parser.parse_args()
    part, parts = (int(number) for number in chosen.part.split("/"))
    programs = read_list(chosen.list)[part - 1 :: parts]
    names = [program.name for program in programs]
    only = chosen.only.split(",") if chosen.only else ["start", *names]
    build_all("trivial", "call_cost", "count_calls")
    costs = costs_of_calls(chosen.gpu) if set(only) & set(names) else {}
    checks: dict[str, Callable[[], Result]] = {"start": partial(check_start, chosen.gpu)}
    checks |= {
        program.name: partial(check_program, program, chosen.gpu, costs) for program in programs
    }
    report = f"programs-{chosen.gpu}" + (f"-{part}of{parts}" if parts > 1 else "")
    results = run_checks_of(report, checks, only)
    print_programs({name: result for name, result in results.items() if name != "start"})
    return status_of(results)


if __name__ == "__main__":
    raise SystemExit(main())
