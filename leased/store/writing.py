"""Writes the rows of the store: what stands in each table of database.py."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping

from leased.core.policy import PolicyState
from leased.processes.identity import ProcessId
from leased.store import columns
from leased.store.reading import Bad
from leased.store.records import TenantRecord
from leased.usage.usage import Usage

ASIDE_MOST = 1000  # rows that were set aside are kept for a person to look at


def put_open(db: sqlite3.Connection, job_id: int, record: TenantRecord | None) -> None:
    """A tenant that is open; None: it is not any more."""
    if record is None:
        db.execute("DELETE FROM tenants WHERE job_id = ?", (job_id,))
        return
    db.execute(
        "INSERT OR REPLACE INTO tenants "
        "(job_id, uid, gang, options, lock, opened, totals, name, start) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(job_id, record.uid, json.dumps(record.gang), record.options, record.lock),
            *(record.opened, json.dumps(dict(record.totals)), record.name, record.start),
        ),
    )


def put_usage(db: sqlite3.Connection, job_id: int, usage: Mapping[str, Usage]) -> None:
    db.execute("DELETE FROM usage WHERE job_id = ?", (job_id,))
    db.executemany(
        "INSERT INTO usage (job_id, uuid, usage) VALUES (?, ?, ?)",
        [(job_id, uuid, json.dumps(used.amounts())) for uuid, used in usage.items()],
    )


def put_remembered(db: sqlite3.Connection, job_id: int, remembered: PolicyState | None) -> None:
    db.execute("DELETE FROM remembered WHERE job_id = ?", (job_id,))
    if remembered is not None:
        values = (job_id, *remembered)
        db.execute("INSERT INTO remembered (job_id, policy, state) VALUES (?, ?, ?)", values)


def put_parked(db: sqlite3.Connection, job_id: int, who: str | None) -> None:
    db.execute("DELETE FROM parked WHERE job_id = ?", (job_id,))
    if who is not None:
        db.execute("INSERT INTO parked (job_id, who) VALUES (?, ?)", (job_id, who))


def put_ended(db: sqlite3.Connection, record: TenantRecord) -> None:
    usage = {uuid: used.amounts() for uuid, used in record.usage.items()}
    db.execute(
        "INSERT OR REPLACE INTO ended "
        "(job_id, opened, uid, gang, options, lock, closed, written, usage, name, start) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(record.job_id, record.opened, record.uid, json.dumps(record.gang), record.options),
            *(record.lock, record.closed, record.settled, json.dumps(usage)),
            *(record.name, record.start),
        ),
    )


def put_stepd(db: sqlite3.Connection, pid: int, known: tuple[ProcessId, int] | None) -> None:
    db.execute("DELETE FROM stepds WHERE pid = ?", (pid,))
    if known:
        values = (pid, known[0].start, known[1])
        db.execute("INSERT INTO stepds (pid, start, job_id) VALUES (?, ?, ?)", values)


def put_setting(db: sqlite3.Connection, device: str, key: str, value: str | None) -> None:
    db.execute("DELETE FROM settings WHERE device = ? AND key = ?", (device, key))
    if value is not None:
        values = (device, key, value)
        db.execute("INSERT INTO settings (device, key, value) VALUES (?, ?, ?)", values)


def put_epoch(db: sqlite3.Connection, epoch: int) -> None:
    db.execute("INSERT OR REPLACE INTO epochs (one, epoch) VALUES (1, ?)", (epoch,))


def drop_settled(db: sqlite3.Connection, before: float, most: int) -> None:
    """Forget ended runs that were settled before then, and the oldest beyond so many."""
    db.execute("DELETE FROM ended WHERE written < ?", (before,))
    db.execute(
        "DELETE FROM ended WHERE rowid IN (SELECT rowid FROM ended WHERE written IS NOT NULL "
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
