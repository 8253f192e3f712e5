"""Which usage belongs on which row of Slurm's accounting, in the row's SystemComment.

SystemComment, because AdminComment is the site's: tools such as jobstats write their own
text there when a job has ended, over whatever was there, and decode all that follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from leased.slurm import usage_record
from leased.store.records import Run, TenantRecord
from leased.usage import step_usage
from leased.usage.usage import together

NODE_S = 30.0  # after a job's end, for each of its nodes, before those behind it go on without it
NO_VAL = 2**32 - 2  # Slurm's "not said"
RESIZING = 1 << 13  # Slurm's state of a row that another row of the same run follows
NO_ROW = "Slurm's accounting has no row of the job yet"
OTHER_RUNS = "Slurm's accounting has only other runs of the job yet"
NO_END = "Slurm's accounting does not have the end of the job yet"


@dataclass(frozen=True)
class JobRow:
    """One run of a job in Slurm's accounting. Times are seconds since 1970; 0: not yet."""

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


def comment(
    runs: Sequence[TenantRecord],
    indices: Mapping[str, int] | None = None,
    existing: str = "",
    node: str = "",
) -> str:
    """Our part of the comment of one row. indices: Slurm's indices of the devices, by UUID.
    existing: the comment that the row has now. node: this one, if the job is on several, all of
    which find room."""
    most = usage_record.LONGEST // max(1, len(runs[-1].nodes)) - len(usage_record.BETWEEN)
    return usage_record.record(
        together(*(run.usage for run in runs)),
        runs[-1].lock,
        min(run.opened for run in runs),
        max(run.closed or run.opened for run in runs),
        indices or {},
        steps=step_usage.added(run.steps for run in runs),
        job_class=runs[-1].job_class,
        node=node,
        room=min(usage_record.room(existing, node), most),
    )


def waits_for(run: TenantRecord, node: str, existing: str, now: float) -> str:
    """The node of the job that is to write its part into this comment before this node does; "":
    none. now: seconds since 1970.

    slurmdbd lets one daemon write over what another one has written meanwhile, so they do it in the
    order of the job's nodes. One that does not come is not waited for any longer.
    """
    place = run.nodes.index(node) if node in run.nodes else 0
    before = run.nodes[place - 1] if place else ""
    late = now > (run.closed or now) + place * NODE_S
    return "" if late or not before or before in usage_record.nodes(existing) else before


def row_of(run: TenantRecord, rows: Iterable[JobRow]) -> JobRow | None:
    """The row that the run belongs on; None: accounting does not have it (yet).

    A requeued job has a row for each of its runs. slurmctld's clock alone tells them apart: the run
    is on the first row that began no earlier than it did. Slurm begins a row anew, and later, where
    a node had to be switched on for the job, and where a job's size has changed while it ran; a run
    is on the last of these, which has its end.
    """
    mine = (row for row in rows if row.job_id == run.job_id)
    began = [row for row in mine if row.began and row.state != RESIZING]
    if not run.start and len(began) > 1:
        return None
    later = [row for row in began if row.start >= run.start]
    return min(later, key=lambda row: row.start, default=None)


def by_row(
    runs: Iterable[TenantRecord], rows: Sequence[JobRow]
) -> tuple[dict[JobRow, list[TenantRecord]], dict[Run, str]]:
    """The runs by the row that they belong on; and why others, whose row is missing or not
    complete, are on none.

    Until a job has ended in the accounting, Slurm may still write its comment itself.
    """
    placed: dict[JobRow, list[TenantRecord]] = {}
    why = {}
    for run in sorted(runs, key=lambda run: run.run):
        row = row_of(run, rows)
        if row is None:
            why[run.run] = OTHER_RUNS if any(row.began for row in rows) else NO_ROW
        elif not row.end:
            why[run.run] = NO_END
        else:
            placed.setdefault(row, []).append(run)
    return placed, why
