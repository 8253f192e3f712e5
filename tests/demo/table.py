"""The demo's result as a person reads it, in a screen of 80 columns: how long two jobs took in each
mode (as nvshare's Table 2), how long a service waits, and what Slurm's accounting says."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from leased.slurm.usage_record import MARK, json_of
from tests.demo.scenarios import Beside, Mode

WIDTH = 80
WORKLOADS = {
    "heavy": "heavy: two jobs, each has 0.95 of the memory, as trainings do",
    "light": "light: two jobs, each has 0.40 of the memory, as inference does",
}
# The most telling of those that share; the others are in result.json.
ACCOUNTED = ("heavy-tq-", "heavy-auto-", "service-classes", "batch-classes")


def _kind(gpu: Mapping[str, Any]) -> str:
    return "EMULATED GPU" if gpu["kind"] == "emulated" else "NVIDIA GPU"


def gpu_words(gpu: dict[str, Any]) -> str:
    """The GPU in words; an emulated one says so."""
    kind = "EMULATED GPU, no NVIDIA GPU here" if gpu["kind"] == "emulated" else "NVIDIA GPU"
    return f"{gpu['name']}, {gpu['memory_bytes'] / (1 << 20):.0f} MiB [{kind}]"


def _line(console: Console, text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)


def print_times(gpu: Mapping[str, Any], console: Console) -> None:
    """The title of `print_time`'s lines."""
    _line(console, f"\nTwo jobs on one GPU [{_kind(gpu)}]: seconds, and part of sequential")


def print_workload(name: str, console: Console) -> None:
    """What the next lines are about."""
    _line(console, WORKLOADS[name])


def print_time(mode: Mode, seconds: float, part: float, console: Console) -> None:
    """How long both jobs took in one mode; part: of what they take one after the other."""
    _line(console, f"  {mode.label:15} {mode.words:42} {seconds:6.1f} s  ({part:.2f})")


def print_services(gpu: Mapping[str, Any], console: Console) -> None:
    """The title of `print_service`'s lines."""
    _line(
        console, f"\nA service of 3 ms each 20 ms, beside a job that always has work [{_kind(gpu)}]"
    )


def print_service(way: Beside, figures: Mapping[str, float], console: Console) -> None:
    """How long requests took, and what the batch job got."""
    times = f"p50 {figures['step_p50_ms']:5.1f}  p99 {figures['step_p99_ms']:5.1f} ms"
    batch = f"  batch {figures['batch_steps_s']:3.0f}/s" if way.batch else ""
    _line(console, f"  {way.label:15} {way.words:24} {times}{batch}")


def print_accounting(lines: Sequence[str], example: int, console: Console) -> None:
    """What sacct says of some jobs to people, and of one of them to programs. lines: sacct's, whose
    columns SACCT_FIELDS names, with a header; the last column has no end."""
    _line(console, "\nWhat sacct says to people of jobs that shared (of all: in result.json)")
    record: dict[str, Any] = {}
    for line in lines[1:]:
        job, name, state, _, _, comment = line.split("|", 5)
        words = comment.partition(" {")[0].removeprefix(MARK)
        if name.startswith(ACCOUNTED):
            _line(console, f"  {job:>3} {name:16} {words if state == 'COMPLETED' else state}")
        if job == str(example):
            record = json_of(comment)
    _line(console, f"and to programs, of job {example} (it has such figures of each step too):")
    steps = {"steps": dict.fromkeys(record.pop("steps", {}), "...")}
    text = json.dumps(record | steps, separators=(", ", ":"))
    folded = textwrap.fill(text, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
    console.print(folded, markup=False)


def print_checks(jobs: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Whether each job computed what it should."""
    wrong = [str(job["job_id"]) for job in jobs if not job["checksum_ok"]]
    if wrong:
        console.print(f"[red]WRONG[/] results: of the jobs {', '.join(wrong)}")
    else:
        _line(console, f"All {len(jobs)} jobs computed what they should.")
