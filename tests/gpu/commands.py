"""Command lines of the programs that several checks run, and how their results are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.gpu.build import KERNELS, build
from tests.gpu.jobs import ONE_GPU, Job, framework_python

BUSY_MS, IDLE_MS, DUTY_S = 22, 50, 20


def workload(
    name: str, seconds: float, steps: int = 0, ready: bool = False, ballast: int = 0
) -> list[str]:
    """A program of workloads.py. steps: 0 for its own number. ballast: in MiB."""
    command = framework_python("-m", "tests.gpu.workloads", name, "--seconds", str(seconds))
    command += ["--ballast", str(ballast)]
    return [*command, "--steps", str(steps), *(["--ready"] if ready else [])]


def segments(name: str, seconds: float) -> list[str]:
    """A program of workloads.py that times a part for each line it reads."""
    return [*workload(name, seconds), "--segments"]


def launch(seconds: float, ready: bool = False) -> list[str]:
    return [str(build("launch")), str(KERNELS), str(seconds), *(["ready"] if ready else [])]


def duty(rounds: int) -> list[str]:
    """A job that is busy for 22 of 72 ms for 20 s, if it is alone; it waits for go()."""
    numbers = [str(number) for number in (BUSY_MS, IDLE_MS, DUTY_S, rounds)]
    return [str(build("duty")), str(KERNELS), *numbers, "ready"]


def duty_rounds() -> int:
    """How much work makes the busy part as long as it should be, on this GPU."""
    command = [str(build("duty")), str(KERNELS), str(BUSY_MS), str(IDLE_MS), str(DUTY_S), "0"]
    return int(Job.start("duty, calibration", command, ONE_GPU).result()["rounds"])


def whole_seconds(results: Sequence[dict[str, Any]]) -> float:
    """From the first one's start to the last one's end."""
    first = min(float(result["from"]) for result in results)
    last = max(float(result["to"]) for result in results)
    return round(last - first, 3)


def speed(result: dict[str, Any]) -> float:
    """Steps per second: of the median batch, where a program tells."""
    return float(result.get("median_steps_s") or result["steps_s"])
