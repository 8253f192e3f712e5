"""The demo's result as a person reads it, in a screen of 80 x 24: how long two jobs took in each
mode (as nvshare's Table 2), how long a service waits, and what Slurm's accounting says of a job."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from leased.slurm.usage_record import MARK, json_of
from tests.demo.scenarios import Beside, Mode

WIDTH = 80
WORKLOADS = {
    "heavy": "heavy: two jobs, each has 0.95 of the memory, as trainings do",
    "light": "light: two jobs, each has 0.40 of the memory, as inference does",
}
# Of what sacct says to programs; all of it is in result.json.
SHOWN = ("time_s", "lease_s", "wait_s", "handoffs")
MORE = '"...":0'


def _kind(gpu: Mapping[str, Any]) -> str:
    return "EMULATED GPU" if gpu["kind"] == "emulated" else "NVIDIA GPU"


def gpu_words(gpu: dict[str, Any]) -> str:
    """The GPU in words; an emulated one says so."""
    kind = "EMULATED GPU, no NVIDIA GPU here" if gpu["kind"] == "emulated" else "NVIDIA GPU"
    return f"{gpu['name']}, {gpu['memory_bytes'] / (1 << 20):.0f} MiB [{kind}]"


def _line(console: Console, text: str, style: str | None = None) -> None:
    console.print(text, markup=False, soft_wrap=True, style=style)


def _title(console: Console, text: str) -> None:
    _line(console, text, "bold")  # no empty line before it: the screen has none to spare


def print_times(gpu: Mapping[str, Any], console: Console) -> None:
    """The title of `print_time`'s lines."""
    _title(console, f"Two jobs on one GPU [{_kind(gpu)}]: seconds, and part of sequential")


def print_workload(name: str, console: Console) -> None:
    """What the next lines are about."""
    _line(console, WORKLOADS[name])


def print_time(mode: Mode, seconds: float, part: float, console: Console) -> None:
    """How long both jobs took in one mode; part: of what they take one after the other."""
    _line(console, f"  {mode.label:15} {mode.words:42} {seconds:6.1f} s  ({part:.2f})")


def print_services(gpu: Mapping[str, Any], console: Console) -> None:
    """The title of `print_service`'s lines."""
    _title(
        console, f"A service of 3 ms each 20 ms, beside a job that always has work [{_kind(gpu)}]"
    )


def print_service(way: Beside, figures: Mapping[str, float], console: Console) -> None:
    """How long requests took, and what the batch job got."""
    times = f"p50 {figures['step_p50_ms']:5.1f}  p99 {figures['step_p99_ms']:5.1f} ms"
    batch = f"  batch {figures['batch_steps_s']:3.0f}/s" if way.batch else ""
    _line(console, f"  {way.label:15} {way.words:24} {times}{batch}")


def print_accounting(lines: Sequence[str], example: int, console: Console) -> None:
    """What sacct says of one job to people and to programs. lines: sacct's, whose columns
    SACCT_FIELDS names, with a header; the last column has no end."""
    row = next(line for line in lines[1:] if line.startswith(f"{example}|"))
    _, name, state, _, _, comment = row.split("|", 5)
    record = json_of(comment)
    _title(console, f"What sacct says of job {example}, {name}, to people and to programs")
    words = comment.partition(" {")[0].removeprefix(MARK)
    _line(console, f"  {words if state == 'COMPLETED' else state}")
    gpus = {uuid: _some(used) for uuid, used in record.get("gpus", {}).items()}
    text = json.dumps({"v": record.get("v"), "gpus": gpus}, separators=(", ", ":"))
    text = text.replace(MORE, "...")
    folded = textwrap.fill(text, WIDTH - 2, initial_indent="  ", subsequent_indent="  ")
    console.print(folded, markup=False)


def _some(used: Mapping[str, Any]) -> dict[str, Any]:
    return {key: used[key] for key in SHOWN if key in used} | {"...": 0}


def print_checks(jobs: Sequence[Mapping[str, Any]], result: Path, console: Console) -> None:
    """Whether each job computed what it should, and where all of this is for programs."""
    wrong = [str(job["job_id"]) for job in jobs if not job["checksum_ok"]]
    if wrong:
        console.print(f"[red]WRONG[/] results: of the jobs {', '.join(wrong)}; see {result}")
    else:
        _line(console, f"All {len(jobs)} jobs computed what they should; figures: {result}")
