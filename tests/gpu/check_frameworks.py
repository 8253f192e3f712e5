"""Do frameworks compute the same, and as fast, under the interposer as on the bare driver?

`python -m tests.gpu.check_frameworks [--only NAME,...] [--kinds frameworks,native,ddp]`
on a machine with a GPU, as root. A framework's program runs once bare and once as
the only job of the daemon, both loaded at once, and they are timed by turns in
short segments: the ratio is the median over pairs of neighbouring segments, so
drift of the machine cancels out. The others run whole, twice by turns. Prints a
table; writes frameworks.json in $OUT or build/bench. Exit status 1 if a program
failed or a digest differs.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tests.gpu.build import BuildError, build
from tests.gpu.commands import segments, speed
from tests.gpu.jobs import (
    ONE_GPU,
    Job,
    JobFailed,
    Sharing,
    framework_python,
    print_table,
    sharing,
    write_report,
)
from tests.gpu.workloads import WORKLOADS
from tests.support.together import zip_strict

MEMORY = "8GiB"
TOO_LARGE = ("jax_defaults",)  # for that; check_swap runs it
MODES = ("bare", "interposed")
KINDS = ("frameworks", "native", "ddp")
NATIVE = ("static", "ptds")
TIMEOUT_S = 100.0  # a framework may compile


@dataclass
class Case:
    """One program and what its runs gave. on_all: it uses every GPU of the machine."""

    name: str
    command: list[str]
    on_all: bool = False
    by_turns: bool = False  # timed in segments
    options: str = "lock:on"
    runs: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    ratios: list[float] = field(default_factory=list)  # of pairs of segments
    error: str = ""
    took_s: float = 0.0

    @property
    def all_runs(self) -> list[dict[str, Any]]:
        return [run for runs in self.runs.values() for run in runs]

    @property
    def equal(self) -> bool:
        """All runs of both kinds gave one digest."""
        return len({run["digest"] for run in self.all_runs}) == 1

    @property
    def good(self) -> bool:
        return not self.error and self.equal and len(self.runs) == 2

    def best(self, mode: str) -> float | None:
        """The fastest run's steps per second."""
        return max(map(speed, self.runs.get(mode, [])), default=None)

    @property
    def ratio(self) -> float | None:
        if self.ratios:
            return round(statistics.median(self.ratios), 4)
        bare, shared = self.best("bare"), self.best("interposed")
        return round(shared / bare, 4) if bare and shared else None


def make_cases(kinds: Sequence[str], only: Sequence[str], seconds: float) -> list[Case]:
    """The chosen programs. A C program that cannot be built fails as a case."""
    cases: list[Case] = []
    if "frameworks" in kinds:
        fitting = (name for name in WORKLOADS if name not in TOO_LARGE)
        cases += [Case(name, segments(name, seconds), by_turns=True) for name in fitting]
    if "native" in kinds:
        cases += [native_case(name, 4 * seconds) for name in NATIVE if not only or name in only]
    if "ddp" in kinds:
        cases.append(
            Case(
                "ddp",
                framework_python("-m", "tests.gpu.ddp", "--seconds", str(4 * seconds)),
                on_all=True,
            )
        )
    return [case for case in cases if not only or case.name in only]


def native_case(name: str, seconds: float) -> Case:
    try:
        return Case(name, [str(build(name)), str(seconds)])
    except BuildError as fault:
        return Case(name, [], error=str(fault)[-3000:])


def start(share: Sharing, case: Case, mode: str) -> Job:
    env = {} if case.on_all else ONE_GPU
    label = f"{case.name}, {mode}"
    if mode == "bare":
        return Job.start(label, case.command, env)
    gpus = range(len(share.devices())) if case.on_all else range(1)
    return share.tenant(label, case.options, case.command, env, ",".join(map(str, gpus)))


def result_of(share: Sharing, job: Job, mode: str) -> dict[str, Any]:
    """What a program printed last. JobFailed: it failed, or ran on the wrong driver."""
    run = job.result(TIMEOUT_S)
    if run["interposed"] != (mode == "interposed"):
        raise job.failed(f"has interposed={run['interposed']}")
    if mode == "interposed":
        run["usage"] = share.usage(job)
    return run


def run_once(share: Sharing, case: Case, mode: str) -> None:
    """One whole run of a program."""
    started = time.monotonic()
    job = start(share, case, mode)
    try:
        run = result_of(share, job, mode)
    finally:
        case.took_s += time.monotonic() - started
    case.runs.setdefault(mode, []).append(run)
    print(f"{job.name}: {run['steps_s']} steps/s", flush=True)


def run_segments(share: Sharing, case: Case, pairs: int) -> None:
    """Both kinds at once, one of them computing at a time."""
    jobs = {mode: start(share, case, mode) for mode in MODES}
    rates: dict[str, list[float]] = {mode: [] for mode in MODES}
    ends = dict.fromkeys(MODES, 0)
    try:
        for mode in [mode for _ in range(pairs) for mode in MODES]:
            while (line := step_line(jobs[mode], ends, mode)) != "ready":
                pass
            jobs[mode].go()
            while not (line := step_line(jobs[mode], ends, mode)).startswith("{"):
                pass
            rates[mode].append(speed(json.loads(line)))
        for mode, job in jobs.items():
            job.end_input()
            case.runs[mode] = [result_of(share, job, mode) | {"steps_s": max(rates[mode])}]
    finally:
        for job in jobs.values():
            job.stop()
    case.ratios = [b / a for a, b in zip_strict(*rates.values())]
    print(f"{case.name}: ratio {case.ratio} of {rates}", flush=True)


def step_line(job: Job, ends: dict[str, int], mode: str) -> str:
    line, ends[mode] = job.next_line(ends[mode], TIMEOUT_S)
    return line


def run_pair(share: Sharing, case: Case) -> None:
    """Bare, then interposed; a failure is kept and printed."""
    if case.error:
        return
    try:
        for mode in MODES:
            run_once(share, case, mode)
    except JobFailed as fault:
        case.error = str(fault)
        print(f"FAILED: {fault}", flush=True)


def run_by_turns(share: Sharing, case: Case, pairs: int) -> None:
    started = time.monotonic()
    try:
        run_segments(share, case, pairs)
    except JobFailed as fault:
        case.error = str(fault)
        print(f"FAILED: {fault}", flush=True)
    case.took_s = time.monotonic() - started


def report(cases: Sequence[Case]) -> None:
    write_report(
        "frameworks", {c.name: asdict(c) | {"good": c.good, "ratio": c.ratio} for c in cases}
    )


def print_cases(cases: Sequence[Case]) -> None:
    rows = []
    for case in cases:
        digest = next((run["digest"][:12] for run in case.all_runs), None)
        rows.append(
            [
                *(case.name, case.good, "failed" if case.error else case.equal, digest),
                *(case.best("bare"), case.best("interposed"), case.ratio),
                *(len(case.ratios) or len(case.runs.get("interposed", [])), round(case.took_s, 1)),
            ]
        )
    head = ["program", "good", "digests equal", "digest"]
    head += ["bare steps/s", "interposed", "ratio", "rounds", "s"]
    print_table(head, rows)


def run_cases(
    share: Sharing, cases: Sequence[Case], rounds: int, pairs: int, limit_s: float
) -> None:
    """All programs once, then those that run whole again while there is time."""
    end = time.monotonic() + limit_s
    for case in [case for case in cases if case.by_turns]:
        if time.monotonic() < end:
            run_by_turns(share, case, pairs)
            report(cases)
    cases = [case for case in cases if not case.by_turns]
    for done in range(rounds):
        for case in cases:
            pair_s = case.took_s / done if done else 0.0
            if time.monotonic() + pair_s > end:
                print(f"no time for round {done + 1} of {case.name}", flush=True)
                continue
            run_pair(share, case)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="names, with commas between")
    parser.add_argument("--kinds", default="frameworks,native", help=f"of {', '.join(KINDS)}")
    parser.add_argument("--seconds", type=float, default=0.7, help="of each timed part")
    parser.add_argument("--pairs", type=int, default=12, help="of segments, bare and interposed")
    parser.add_argument("--rounds", type=int, default=2, help="of programs that run whole")
    parser.add_argument("--swap", action="store_true", help="memory:swap instead of managed")
    parser.add_argument("--limit", type=float, default=480.0, help="start nothing after so many s")
    return parser.parse_args()


def main() -> int:
    chosen = parse_arguments()
    only = [name for name in chosen.only.split(",") if name]
    cases = make_cases(chosen.kinds.split(","), only, chosen.seconds)
    if not cases:
        raise SystemExit("no such program")
    if chosen.swap:
        cases = [replace(case, options="lock:on,memory:swap") for case in cases]
    with sharing(MEMORY, 'swap_host = "16GiB"\n') as share:
        run_cases(share, cases, chosen.rounds, chosen.pairs, chosen.limit)
    print_cases(cases)
    report(cases)
    return 0 if all(case.good for case in cases) else 1


if __name__ == "__main__":
    raise SystemExit(main())
