"""gpu-leasectl report: who used the GPUs, from the records in Slurm's accounting."""

from __future__ import annotations

import csv
import io
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from rich.cells import cell_len, set_cell_size

from leased.base import job_names
from leased.base.errors import Refused
from leased.base.words import count, line, size
from leased.cli.report_sums import Sums, Use, step_uses, summed, total, uses
from leased.slurm import sacct
from leased.slurm.sacct import Asked, Row

NAME = 22  # columns of a name
JOBS_NAMED = 6
HEAD = ("jobs", "leased", "waited", "idle", "busy", "exclusive")
# The unit of times: the largest in which the report has a whole one.
UNITS = ((3600.0, "GPU hours"), (60.0, "GPU minutes"), (1.0, "GPU seconds"))
NOTES = """\
leased: time in which jobs held the GPU, divided among those side by side.
waited: for a GPU that another job held. idle: with memory on the GPU and
nothing to do. busy: part of the leases in which NVML called the GPU busy.
exclusive: what the jobs would have needed with GPUs of their own."""


class Report(NamedTuple):
    """What is shown. problems: sentences about jobs that are missing and were asked for. notes:
    sentences about other jobs that are missing."""

    by: str
    groups: list[Sums]
    total: Sums
    problems: list[str]
    notes: list[str]


def make(rows: Iterable[Row], by: str, asked: Asked) -> Report:
    """Refused: nothing of what was asked for by number is there."""
    rows = list(rows)
    problems = [f"job {row.label}: {row.fault}" for row in rows if row.fault]
    problems += _lacking(rows, asked)
    asked_steps = [_asked_steps(row, asked) for row in rows]
    found = [use for row, names in zip(rows, asked_steps) for use in _of(row, names)]
    if asked.jobs and not found and problems:
        raise Refused("; ".join(problems))
    notes = [] if asked.jobs else _unwritten(rows)
    parts = found
    if by == "step":
        of_rows = zip(rows, asked_steps)
        parts = [use for row, names in of_rows for use in _of(row, names, step_uses)]
    return Report(by, summed(parts, by), total(found), problems, notes)


def _typed(asked: Asked) -> list[tuple[str, str]]:
    """The jobs and steps that were asked for, each as its name and that of the step."""
    return [job_names.split(typed) for typed in re.split(r"[, ]+", asked.jobs) if typed]


def _asked_steps(row: Row, asked: Asked) -> set[str]:
    """The steps of the job that were asked for; empty: the whole of it."""
    steps = {s for job, s in _typed(asked) if job_names.means(job, row.job_id, row.label)}
    return set() if "" in steps else steps


def _of(row: Row, steps: set[str], rest: Callable[[Row], Iterable[Use]] = uses) -> Iterable[Use]:
    """What these steps had; none: what the rest says."""
    return [use for use in step_uses(row) if use.step in steps] if steps else rest(row)


def _lacking(rows: list[Row], asked: Asked) -> Iterator[str]:
    """Sentences about jobs that were asked for by number, and are missing or have no record."""
    for job, step in _typed(asked):
        there = [row for row in rows if job_names.means(job, row.job_id, row.label)]
        if job_names.is_name(job) and not there:  # sacct takes more than these
            yield f"job {sacct.shown_words(job)} is unknown to Slurm's accounting"
        records = [row.usage for row in there if row.usage is not None]
        if step and records and not any(step in run.steps for run in records):
            yield f"the record of job {job} has no step {sacct.shown_words(step)}"
    for row in rows if asked.jobs else []:
        if row.usage is None and not row.fault:
            yield f"job {row.label} has no record of its use: {_why(row)}"


def _why(row: Row) -> str:
    if not row.end or not row.start:
        return "it has not ended, or has not begun"
    return (
        "it is written some seconds after the end of the job" if row.shares else "it shared no GPU"
    )


def _unwritten(rows: list[Row]) -> list[str]:
    """Jobs that have shared a GPU, as far as Slurm knows, and have no record."""
    found = [r for r in rows if r.usage is None and not r.fault and r.shares and r.start and r.end]
    if not found:
        return []
    named = ", ".join(row.label for row in found[:JOBS_NAMED])
    more = len(found) - JOBS_NAMED
    listed = f"{named} and {more} more" if more > 0 else named
    return [f"no record (yet) of {count(len(found), 'run')} with a shard: {listed}"]


# -- how it is shown -------------------------------------------------------------------


def as_dict(report: Report) -> dict[str, Any]:
    """For --json."""
    return {
        "by": report.by,
        "groups": [sums.as_dict() for sums in report.groups],
        "total": report.total.as_dict(),
        "problems": report.problems,
        "notes": report.notes,
    }


def as_csv(report: Report) -> str:
    """A head with the names of the figures, and a line for each group."""
    text = io.StringIO()
    columns = list(report.total.as_dict())
    columns[0] = report.by
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for sums in report.groups:
        writer.writerow(["" if v is None else v for v in sums.as_dict().values()])
    return text.getvalue().rstrip("\n")


def as_text(report: Report) -> str:
    """For people: at most 80 columns."""
    if not report.groups:
        return "No job here that shared a GPU and has ended."
    of, unit = next(
        (each for each in UNITS if report.total.exclusive_s >= each[0]), (1.0, "GPU seconds")
    )
    begin, end = report.total.whole_span()
    head = (
        f"{unit} of {count(len(report.total.jobs), 'job')} on "
        f"{count(len(report.total.spans), 'shared GPU')}, "
        f"{_date(begin)} to {_date(end)}"
    )
    lines = [head, "", _line(report.by, HEAD)]
    lines += [_line(sums.name, _cells(sums, of)) for sums in report.groups]
    if len(report.groups) > 1:
        lines.append(_line("total", _cells(report.total, of)))
    return "\n".join([*lines, "", *_gain(report.total, of, unit), "", NOTES])


def _line(name: str, cells: Iterable[str]) -> str:
    jobs, *amounts = cells
    name = line(name)
    shortened = name if cell_len(name) <= NAME else set_cell_size(name, NAME - 1) + "~"
    return set_cell_size(shortened, NAME) + f"{jobs:>6}" + "".join(f"{a:>10}" for a in amounts)


def _cells(sums: Sums, of: float) -> list[str]:
    amounts = [sums.amounts[name] for name in ("lease_s", "wait_s", "idle_resident_s")]
    busy = "-" if sums.efficiency is None else f"{sums.efficiency:.0%}"
    shown = [_amount(amount / of) for amount in amounts]
    return [str(len(sums.jobs)), *shown, busy, _amount(sums.exclusive_s / of)]


def _amount(value: float) -> str:
    """In less than the ten columns that it has."""
    return f"{value:.2f}" if value < 999_999 else f"{value:.0f}"


def _gain(sums: Sums, of: float, unit: str) -> list[str]:
    """What the sharing saved, in sentences."""
    needed, had = sums.exclusive_s / of, sums.occupied_s / of
    first = f"With a GPU of their own each these jobs would have needed {needed:.2f} {unit}."
    if had < needed:
        part = 1 - had / needed
        second = f"They had {had:.2f} of shared GPUs: {needed - had:.2f} saved, {part:.0%}."
    else:
        second = f"They were on shared GPUs for {had:.2f}: nothing saved."
    into, out = size(sums.moved_in_bytes), size(sums.amounts["moved_out_bytes"])
    return [first, second, f"Handoffs moved {into} to GPUs and {out} from them."]


def _date(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def say_problems(report: Report) -> None:
    for problem in report.problems + report.notes:
        print(f"gpu-leasectl: {problem}", file=sys.stderr)
