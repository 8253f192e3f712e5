"""The demo's result as a person reads it: the form of nvshare's Table 2, and who held the GPU."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from leased.slurm.usage_record import MARK, json_of
from tests.demo.scenarios import PLAN, Mode

LEGEND = """\
sequential    one job after the other, each with the whole GPU, as without sharing
lock:off      both at once, and nothing keeps them from pushing each other's memory out
tq:N          by turns of N seconds (lock:on: always by turns)
lock:auto     gpu-lease's default: side by side while their memory fits together, else by turns
Ratios below 1 are faster than one job after the other.
"""
ROWS = ["sequential", "lock_off", "tq", "lock_on", "auto"]


def _makespans(result: dict[str, Any]) -> dict[tuple[str, str], float]:
    return {(run["name"], run["mode"]): run["makespan_s"] for run in result["scenarios"]}


def _cell(times: dict[tuple[str, str], float], name: str, mode: str) -> str:
    if (name, mode) not in times:
        return "-"
    seconds, base = times[name, mode], times.get((name, "sequential"))
    return f"{seconds:.1f} s" + (f"  ({seconds / base:.2f})" if base else "")


def _kind(result: dict[str, Any]) -> str:
    return "EMULATED GPU" if result["gpu"]["kind"] == "emulated" else "NVIDIA GPU"


def gpu_words(gpu: dict[str, Any]) -> str:
    """The GPU in words; an emulated one says so."""
    kind = "EMULATED GPU, no NVIDIA GPU here" if gpu["kind"] == "emulated" else "NVIDIA GPU"
    return f"{gpu['name']}, {gpu['memory_bytes'] / (1 << 20):.0f} MiB [{kind}]"


def print_results(result: dict[str, Any], modes: dict[str, Mode], console: Console) -> None:
    """Both tables: completion time of two jobs by mode, and each job's lease."""
    times = _makespans(result)
    title = f"How long two jobs took on one GPU [{_kind(result)}]"
    table = Table(title=title, title_justify="left")
    table.add_column("mode")
    for name, words in (("heavy", "heavy: 2 x 0.95"), ("light", "light: 2 x 0.40")):
        table.add_column(f"{words} of the memory\nseconds (ratio to sequential)", justify="right")
        assert name in PLAN
    for mode in ROWS:
        table.add_row(modes[mode].label, *(_cell(times, name, mode) for name in PLAN))
    console.print(table)
    console.print(LEGEND, markup=False)
    console.print(_jobs_table(result, modes))


def _jobs_table(result: dict[str, Any], modes: dict[str, Mode]) -> Table:
    table = Table(title=f"Who held the GPU, for how long [{_kind(result)}]", title_justify="left")
    for column in ("job", "scenario", "mode", "state"):
        table.add_column(column)
    for column in ("held", "waited", "handoffs", "memory moved"):
        table.add_column(column, justify="right")
    table.add_column("result")
    for run in result["scenarios"]:
        for job in run["jobs"]:
            table.add_row(
                *(str(job["job_id"]), run["name"], modes[run["mode"]].label, job["state"]),
                *(f"{job['lease_s']:.1f} s", f"{job['wait_s']:.1f} s", str(job["handoffs"])),
                f"{job['moved_bytes'] / (1 << 20):.0f} MiB",
                "right" if job["checksum_ok"] else "WRONG",
            )
    return table


def print_accounting(lines: Sequence[str], example: int, console: Console) -> None:
    """What sacct says of each job to people, and of one of them to programs. lines: sacct's, whose
    columns SACCT_FIELDS names, with a header; the last column has no end."""
    table = Table(title="What Slurm's accounting says of each job", title_justify="left")
    for column in ("job", "name", "state", "SystemComment, the part for people"):
        table.add_column(column)
    records = {}
    for line in lines[1:]:
        job, name, state, _, _, comment = line.split("|", 5)
        records[job] = json_of(comment)
        words = comment.partition(" {")[0].removeprefix(MARK)
        table.add_row(job, name, state, words or "(it had the whole GPU)")
    console.print(table)
    console.print(f"\nThe part for programs is JSON behind these words. That of job {example}:")
    text = json.dumps(records[str(example)], separators=(", ", ": "))
    folded = textwrap.fill(text, 100, initial_indent="  ", subsequent_indent="  ")
    console.print(folded, markup=False)
