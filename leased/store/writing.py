"""Writes the rows of the store: what stands in each table of database.py."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterable, Mapping

from leased.store import columns
from leased.store.reading import Bad
from leased.store.records import TenantRecord
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage

ASIDE_MOST = 1000  # rows that were set aside are kept for a person to look at

Row = Mapping[str, object]  # by the names of columns


def put(db: sqlite3.Connection, table: str, key: Row, rows: Iterable[Row]) -> None:
    """From now on these rows stand in the table under the key. Its columns are left out of them."""
    where = " AND ".join(f"{name} = :{name}" for name in key)
    db.execute(f"DELETE FROM {table} WHERE {where}", key)
    for row in rows:
        whole = {**key, **row}
        names = ", ".join(whole), ", :".join(whole)
        db.execute("INSERT INTO {} ({}) VALUES (:{})".format(table, *names), whole)


def _row(record: TenantRecord) -> dict[str, object]:
    """What the rows of an open tenant and of an ended run have alike."""
    return {
        "uid": record.uid,
        "gang": json.dumps(record.gang),
        "options": record.options,
        "lock": record.lock,
        "name": record.name,
        "start": record.start,
        "nodes": json.dumps(record.nodes),
    }


def tenant_row(record: TenantRecord) -> Row:
    """Of a tenant that is open."""
    totals = json.dumps(dict(record.totals))
    return {**_row(record), "opened": record.opened, "totals": totals}


# By table, the rows of a tenant that is open.
OF_OPEN: dict[str, Callable[[TenantRecord], list[Row]]] = {
    "tenants": lambda record: [tenant_row(record)],
    "usage": lambda record: [
        {"uuid": uuid, "usage": json.dumps(used.amounts())} for uuid, used in record.usage.items()
    ],
    "remembered": lambda record: [record.remembered._asdict()] if record.remembered else [],
    "parked": lambda record: [] if record.parked_by is None else [{"who": record.parked_by}],
}


def ended_row(record: TenantRecord) -> Row:
    """Of a run that has ended."""
    usage = _counted(record.usage)
    return {**_row(record), "closed": record.closed, "written": record.settled, "usage": usage}


def step_row(step: StepUsage) -> Row:
    """Of a step of a run."""
    return {"since": step.since, "until": step.until, "usage": _counted(step.usage)}


def _counted(usage: Mapping[str, Usage]) -> str:
    return json.dumps({uuid: used.amounts() for uuid, used in usage.items()})


def drop_settled(db: sqlite3.Connection, before: float, most: int) -> None:
    """Forget ended runs that were settled before then, and the oldest beyond so many."""
    db.execute("DELETE FROM ended WHERE written < ?", (before,))
    db.execute(
        "DELETE FROM ended WHERE rowid IN (SELECT rowid FROM ended WHERE written IS NOT NULL "
        "ORDER BY written DESC LIMIT -1 OFFSET ?)",
        (most,),
    )


def drop_steps(db: sqlite3.Connection, most: int) -> None:
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


def put_aside(db: sqlite3.Connection, bad: Bad) -> None:
    """Move a row to where nobody reads it but a person."""
    row = db.execute(f"SELECT * FROM {bad.table} WHERE rowid = ?", (bad.rowid,)).fetchone()
    if row is not None:
        words = ascii(dict(row))[: columns.LONGEST]
        values = (bad.table, bad.why, words)
        db.execute(
            "INSERT INTO aside (at, place, why, content) VALUES (strftime('%s'), ?, ?, ?)", values
        )
        db.execute(f"DELETE FROM {bad.table} WHERE rowid = ?", (bad.rowid,))
        db.execute(
            "DELETE FROM aside WHERE rowid <= (SELECT max(rowid) FROM aside) - ?", (ASIDE_MOST,)
        )
