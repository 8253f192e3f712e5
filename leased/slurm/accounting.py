"""Usage as it stands in Slurm's accounting: our part of a job's SystemComment, and on which row.

SystemComment, because AdminComment is the site's: tools such as jobstats write their own
text there when a job has ended, over whatever was there, and decode all that follows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from leased.base.errors import Refused
from leased.core.usage import FIGURES, Usage
from leased.store.tables import TenantRecord

MARK = "gpu-lease: "
LONGEST = 65_535  # Slurm keeps so many bytes and cuts the rest without a word
NO_VAL = 2**32 - 2  # Slurm's "not said"
CLOCKS_S = 60.0  # by how much the clocks of the node and of slurmctld may differ


@dataclass(frozen=True)
class JobRow:
    """One run of a job in Slurm's accounting. Times in seconds since the epoch, 0: not yet."""

    job_id: int
    array_job_id: int
    array_task_id: int
    het_job_id: int
    het_job_offset: int
    state: int
    submit: int
    start: int
    end: int

    @property
    def began(self) -> bool:
        return self.start not in (0, NO_VAL)


def summary(usage: Usage) -> dict[str, float | int]:
    """One device's usage as it stands in the comment: seconds, bytes and counts."""
    values = {figure.key: (figure, figure.value(usage)) for figure in FIGURES}
    return {key: value for key, (figure, value) in values.items() if value or not figure.rare}


def added(usages: Iterable[Mapping[str, Usage]]) -> dict[str, Usage]:
    """By device, what several runs had together."""
    total: dict[str, Usage] = {}
    for by_device in usages:
        for uuid, used in by_device.items():
            sums = total.setdefault(uuid, Usage())
            for figure in FIGURES:
                so_far, more = getattr(sums, figure.name), getattr(used, figure.name)
                setattr(sums, figure.name, figure.together(so_far, more))
    return total


def comment(runs: Sequence[TenantRecord]) -> str:
    """Our part of the comment for one row: one line of JSON behind a mark."""
    gpus = {uuid: summary(usage) for uuid, usage in added(run.usage for run in runs).items()}
    return MARK + json.dumps({"v": 1, "lock": runs[-1].lock, "gpus": gpus}, separators=(",", ":"))


def merged(existing: str, ours: str) -> str:
    """What is to be stored: Slurm's own text first, ours (again) behind it."""
    theirs = existing.partition(MARK)[0].rstrip().removesuffix(";").rstrip()
    text = f"{theirs}; {ours}" if theirs else ours
    size = len(text.encode(errors="surrogateescape"))
    if size > LONGEST:
        raise Refused(f"the comment has {size} bytes, Slurm keeps {LONGEST}")
    return text


def parse_comment(text: str) -> dict[str, Any]:
    """Our part of a SystemComment; {} when there is none."""
    _, mark, ours = text.partition(MARK)
    return dict(json.loads(ours)) if mark else {}


def row_of(run: TenantRecord, rows: Iterable[JobRow]) -> JobRow | None:
    """The row of the run: the one of that time; None: there is none (yet).

    A requeued job has a row for each run, and ours began and ended within one of them
    but for what the clocks differ.
    """

    def overlap(row: JobRow) -> float:
        ends = [end for end in (run.closed, row.end) if end]
        return min(ends, default=run.opened) - max(run.opened, row.start)

    began = [row for row in rows if row.job_id == run.job_id and row.began]
    best = max(began, key=lambda row: (overlap(row), row.start), default=None)
    return best if best is not None and overlap(best) >= -CLOCKS_S else None


def by_row(
    runs: Iterable[TenantRecord], rows: Sequence[JobRow]
) -> tuple[dict[JobRow, list[TenantRecord]], list[TenantRecord]]:
    """The runs by the row that they belong on, and those whose row is not there or not complete.

    Slurm may write the comment itself until a job has ended there.
    """
    placed: dict[JobRow, list[TenantRecord]] = {}
    later = []
    for run in sorted(runs, key=lambda run: run.run):
        row = row_of(run, rows)
        if row is None or not row.end:
            later.append(run)
        else:
            placed.setdefault(row, []).append(run)
    return placed, later
