"""What Slurm's accounting has of jobs that shared a GPU, and jobs of which it is easily told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

from leased.slurm.usage_record import MARK, json_of
from tests.slurm.processes import wait_until
from tests.slurm.site import Site
from tests.slurm.test_share import JOB

MIB = 1 << 20


class Run(NamedTuple):
    """A row of a job. records: how many there are in its comment; usage: the JSON of ours."""

    raw: str
    state: str
    usage: dict[str, Any]
    records: int
    elapsed_s: int

    @property
    def peaks(self) -> list[int]:
        """MiB at most on each device; [] without usage."""
        return [gpu["peak_bytes"] // MIB for gpu in self.usage.get("gpus", {}).values()]


def runs(site: Site, job: int | str) -> list[Run]:
    """Every row of a job, oldest first."""
    fields = "JobID,State,ElapsedRaw,SystemComment"
    said = site.slurm.run("sacct", "-D", "-X", "-n", "-P", "-j", str(job), "-o", fields).stdout
    lines = [line.split("|", 3) for line in said.splitlines()]
    return [
        Run(raw, state.split()[0], json_of(text), text.count(MARK), int(elapsed))
        for raw, state, elapsed, text in lines
    ]


def states(found: list[Run]) -> list[str]:
    return [run.state for run in found]


def peaks(found: list[Run]) -> list[list[int]]:
    return [run.peaks for run in found]


def have_usage(site: Site, job: int | str, count: int, timeout: float = 180.0) -> list[Run]:
    """So many rows of the job, each with its usage, once they are there."""
    found: list[Run] = []

    def complete() -> bool:
        nonlocal found
        found = runs(site, job)
        return len(found) == count and all(run.usage for run in found)

    wait_until(f"{count} runs of job {job} to have their usage", complete, timeout=timeout)
    return found


def script(site: Site, name: str, *lines: str) -> Path:
    path = site.work / f"{name}.sh"
    path.write_text("\n".join(["#!/bin/sh", *lines]) + "\n")
    return path


def gpu_work(size: int | str) -> str:
    """A line that uses so many bytes of a GPU."""
    return f"{sys.executable} {JOB} --bytes {size} --steps 2 --result /dev/null || exit 1"
