"""Writes the rows of the store's table of steps, which are read with their runs."""

from __future__ import annotations

import json
import sqlite3

from leased.store.records import Run
from leased.usage.step_usage import StepUsage


def put(db: sqlite3.Connection, run: Run, name: str, step: StepUsage) -> None:
    """What a step of a run has had."""
    usage = json.dumps({uuid: used.amounts() for uuid, used in step.usage.items()})
    db.execute(
        "INSERT OR REPLACE INTO steps (job_id, opened, step, since, until, usage) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (*run, name, step.since, step.until, usage),
    )


def drop(db: sqlite3.Connection, most: int) -> None:
    """Forget the steps of runs that are forgotten, and of settled runs all but so many: those of
    the runs that were settled first."""
    db.execute(
        "DELETE FROM steps WHERE NOT EXISTS (SELECT 1 FROM ended WHERE "
        "ended.job_id = steps.job_id AND ended.opened = steps.opened) AND NOT EXISTS (SELECT 1 "
        "FROM tenants WHERE tenants.job_id = steps.job_id AND tenants.opened = steps.opened)"
    )
    db.execute(
        "DELETE FROM steps WHERE rowid IN (SELECT steps.rowid FROM steps JOIN ended "
        "USING (job_id, opened) WHERE written IS NOT NULL "
        "ORDER BY written DESC LIMIT -1 OFFSET ?)",
        (most,),
    )
