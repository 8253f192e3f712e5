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
differ is reported as such. Writes programs-GPU.json.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.gpu.checks import Result, run_checks
from tests.gpu.jobs import Job, Sharing, on_gpu, sharing, stopping

GIB = 1 << 30
LIMIT_S = 120.0
ALONE_GIB = 24
ROOM = 1.4  # of what one program had at most: two do not fit
SMALLEST_GIB = 0.25
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
        tables = tomllib.loads(path.read_text())["program"]
        return [
            Program(**table | {"directory": path.parent.resolve() / table["directory"]})
            for table in tables
        ]
    except (OSError, KeyError, TypeError, tomllib.TOMLDecodeError) as fault:
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


def run_bare(program: Program, gpu: int) -> Run:
    job = Job.start(f"{program.name}, bare", program.line(), on_gpu(gpu))
    with stopping(job):
        return wait(job, program, job.started)


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


def check_program(program: Program, gpu: int) -> Result:
    bare, shared, peak = [], [], 0
    with capped(ALONE_GIB) as share:
        for _ in range(2 if program.rounds else 1):
            bare.append(run_bare(program, gpu))
            run, most = run_shared(share, program, gpu)
            shared.append(run)
            peak = max(peak, most)
    two, usage = run_two(program, gpu, peak)
    repeatable = len({run.result for run in bare}) == 1
    equal = {run.result for run in (*shared, *two)} == {bare[0].result}
    ratio = min(run.seconds for run in shared) / min(run.seconds for run in bare)
    moved = [round(used["moved_bytes"] / GIB, 2) for used in usage]
    return {
        "good": equal or not repeatable,
        "summary": ("equal" if equal else "NOT EQUAL" if repeatable else "differs bare as well")
        + f", {min(run.seconds for run in bare):.1f} s bare, shared {ratio:.3f} of it; two on "
        f"{ROOM * peak / GIB:.2f} GiB: {max(run.seconds for run in two):.1f} s, "
        f"handoffs {[used['handoffs'] for used in usage]}, GiB moved {moved}",
        "equal": equal,
        "repeatable": repeatable,
        "bare_s": [run.seconds for run in bare],
        "shared_s": [run.seconds for run in shared],
        "two_s": [run.seconds for run in two],
        "peak_bytes": peak,
        "usage": usage,
        "results": {
            "bare": [run.result[-3:] for run in bare],
            "shared": [run.result[-3:] for run in shared],
            "two": [run.result[-3:] for run in two],
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("--part", default="1/1", help="1/2: every second program from the first on")
    parser.add_argument("--only", default="", help="names, with commas between")
    chosen = parser.parse_args()
    part, parts = (int(number) for number in chosen.part.split("/"))
    programs = read_list(chosen.list)[part - 1 :: parts]
    checks: dict[str, Callable[[], Result]] = {
        program.name: partial(check_program, program, chosen.gpu) for program in programs
    }
    only = chosen.only.split(",") if chosen.only else list(checks)
    return run_checks(f"programs-{chosen.gpu}", checks, only)


if __name__ == "__main__":
    raise SystemExit(main())
