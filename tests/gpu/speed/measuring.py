"""Processes of one program, bare and interposed, timed by turns; and what that shows."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

from tests.gpu.jobs import Job
from tests.gpu.speed.intervals import Ratio, ratio_of

CLOCKS = {"host": "host_s", "device": "device_s"}
MOST = 1.01
START_S = 180.0  # a framework is imported by all processes at once, and may compile


@dataclass
class Process:
    """One process of a program. end: how much of its output has been read."""

    mode: str
    job: Job
    end: int = 0
    times: dict[str, list[float]] = field(default_factory=lambda: {clock: [] for clock in CLOCKS})

    def answer(self, timeout: float) -> dict[str, Any]:
        """The next line of JSON that it prints."""
        while True:
            line, self.end = self.job.next_line(self.end, timeout)
            if line.startswith("{"):
                return dict(json.loads(line))

    def segment(self, steps: int) -> None:
        self.job.say(str(steps))
        timed = self.answer(START_S)
        for clock, key in CLOCKS.items():
            self.times[clock].append(timed[key] / timed["steps"])


@dataclass
class Row:
    """What was found of a program. ratios: by mode and clock."""

    name: str
    ratios: dict[str, dict[str, Ratio]] = field(default_factory=dict)
    step_us: dict[str, float] = field(default_factory=dict)  # by mode, the host's clock
    processes: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    took_s: float = 0.0
    error: str = ""

    def verdict(self, mode: str) -> str:
        found = {ratio.verdict(MOST) for ratio in self.ratios[mode].values()}
        return next(word for word in ("slower", "unclear", "within") if word in found)

    @property
    def good(self) -> bool:
        return not self.error and all(self.verdict(mode) != "slower" for mode in self.ratios)

    def report(self) -> dict[str, Any]:
        verdicts = {mode: self.verdict(mode) for mode in self.ratios}
        return asdict(self) | {"verdicts": verdicts, "good": self.good}


def measure(processes: Sequence[Process], seconds: float, rounds: int) -> int:
    """All segments of all processes; the steps of one."""
    step_s = statistics.median([float(p.answer(START_S)["step_s"]) for p in processes])
    steps = max(1, math.ceil(seconds / step_s))
    for n in range(rounds):
        for process in processes if n % 2 == 0 else reversed(processes):
            process.segment(steps)
    return steps


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
        row.step_us[mode] = statistics.median(chain.from_iterable(by_clock["host"])) * 1e6
        if mode != "bare":
            row.ratios[mode] = {c: ratio_of(by_clock[c], times["bare"][c]) for c in CLOCKS}
