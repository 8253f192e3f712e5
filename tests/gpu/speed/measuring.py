"""Processes of one program, bare and interposed, timed by turns; and what that shows."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from tests.gpu.jobs import Job
from tests.gpu.speed.calls import UnknownCost, added_us
from tests.gpu.speed.intervals import Ratio, low_quantile, ratio_of
from tests.gpu.speed.placing import pin

CLOCKS = {"host": "host_s", "device": "device_s"}
MOST = 1.01
START_S = 180.0  # a framework is imported by all processes at once, and may compile
COUNTED_STEPS = 10


@dataclass
class Process:
    """One process of a program. end: how much of its output has been read."""

    mode: str
    job: Job
    end: int = 0
    ready: dict[str, Any] = field(default_factory=dict)
    times: dict[str, list[float]] = field(default_factory=lambda: {clock: [] for clock in CLOCKS})

    def answer(self, timeout: float = START_S) -> dict[str, Any]:
        """The next line of JSON that it prints."""
        while True:
            line, self.end = self.job.next_line(self.end, timeout)
            if line.startswith("{"):
                return dict(json.loads(line))

    def ask(self, line: str) -> dict[str, Any]:
        self.job.say(line)
        return self.answer()

    def segment(self, steps: int) -> None:
        timed = self.ask(str(steps))
        for clock, key in CLOCKS.items():
            self.times[clock].append(timed[key] / timed["steps"])

    def count(self) -> dict[str, Any]:
        """calls: of each of the driver's functions, a step; None: they cannot be counted."""
        if "calls" in self.ready:
            return {"calls": self.ready["calls"]}
        return self.ask(f"count {COUNTED_STEPS}")


@dataclass
class Row:
    """What was found of a program. ratios: by mode and clock."""

    name: str
    ratios: dict[str, dict[str, Ratio]] = field(default_factory=dict)
    step_us: dict[str, float] = field(default_factory=dict)  # by mode, undisturbed, host's clock
    median_us: dict[str, float] = field(default_factory=dict)
    calls: dict[str, float] | None = None  # of the driver's functions, a step
    by_calls: dict[str, float] = field(default_factory=dict)  # at most so many times the bare step
    no_calls: str = ""  # why there is nothing by calls
    processes: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    took_s: float = 0.0
    error: str = ""

    def by_times(self, mode: str) -> str:
        found = {ratio.verdict(MOST) for ratio in self.ratios[mode].values()}
        return next(word for word in ("slower", "unclear", "within") if word in found)

    def decided_by(self, mode: str) -> str:
        """Times, where they are sure; else calls, where these are known."""
        known = self.by_times(mode) == "unclear" and mode in self.by_calls
        return "calls" if known else "times"

    def verdict(self, mode: str) -> str:
        if self.decided_by(mode) == "times":
            return self.by_times(mode)
        return "within" if self.by_calls[mode] <= MOST else "unclear"

    @property
    def good(self) -> bool:
        return not self.error and all(self.verdict(mode) != "slower" for mode in self.ratios)

    def report(self) -> dict[str, Any]:
        verdicts = {mode: self.verdict(mode) for mode in self.ratios}
        decided_by = {mode: self.decided_by(mode) for mode in self.ratios}
        return asdict(self) | {"verdicts": verdicts, "decided_by": decided_by, "good": self.good}


def get_ready(processes: Sequence[Process], cores: Collection[int]) -> None:
    """All are set up; from then on they run on these cores."""
    for process in processes:
        process.ready = process.answer()
    for process in processes:
        pin(process.job.process.pid, cores)


def steps_of(processes: Sequence[Process], seconds: float) -> int:
    """How many steps last so long, tried by each alone: while all started they were slower."""
    first = statistics.median(float(process.ready["step_s"]) for process in processes)
    for process in processes:
        process.segment(max(1, math.ceil(seconds / first)))
    step_s = min(process.times["host"].pop() for process in processes)
    for process in processes:
        process.times["device"].clear()
    return max(1, math.ceil(seconds / step_s))


def measure(processes: Sequence[Process], steps: int, rounds: int, most_s: float) -> None:
    """All segments of all processes, in pairs of rounds there and back, while there is time."""
    end_at = time.monotonic() + most_s
    for n in range(rounds):
        if n % 2 == 0 and n and time.monotonic() > end_at:
            break
        for process in processes if n % 2 == 0 else reversed(processes):
            process.segment(steps)


def end(process: Process) -> dict[str, Any]:
    """Let it end. JobFailed: it was on the wrong driver."""
    process.job.end_input()
    last = process.job.result()
    if last["interposed"] != (process.mode != "bare"):
        raise process.job.failed(f"has interposed={last['interposed']}")
    return last | {"mode": process.mode, "times": process.times}


def compare(row: Row, processes: Sequence[Process]) -> None:
    """The ratios of every mode to bare."""
    times = {
        mode: {c: [p.times[c] for p in processes if p.mode == mode] for c in CLOCKS}
        for mode in dict.fromkeys(process.mode for process in processes)
    }
    for mode, by_clock in times.items():
        host = by_clock["host"]
        row.step_us[mode] = statistics.mean(low_quantile(process) for process in host) * 1e6
        row.median_us[mode] = statistics.median(chain.from_iterable(host)) * 1e6
        if mode != "bare":
            row.ratios[mode] = {c: ratio_of(by_clock[c], times["bare"][c]) for c in CLOCKS}


def compare_calls(
    row: Row, counted: Mapping[str, Any], costs: Mapping[str, Mapping[str, float]]
) -> None:
    """How much slower the calls can make it. counted: of Process.count(); costs: by mode."""
    row.calls, row.no_calls = counted["calls"], counted.get("why", "")
    if row.calls is None:
        return
    try:
        for mode in row.ratios:
            added = added_us(row.calls, costs[mode])
            row.by_calls[mode] = 1 + added / row.step_us["bare"]
    except UnknownCost as fault:
        row.no_calls = f"the cost of {fault} is not measured"
