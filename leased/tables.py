"""The rows of the store: what stands in each table of database.py, written and read."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from leased.arbiter import Usage
from leased.identity import ProcessId

log = logging.getLogger("gpu-leased")

USAGE_FIELDS = {field.name for field in fields(Usage)}


@dataclass(frozen=True)
class TenantRecord:
    """A tenant as stored. usage: by device UUID."""

    job_id: int
    uid: int
    gang: tuple[str, ...]
    options: str
    lock: str
    usage: Mapping[str, Usage]


@dataclass
class Kept:
    """A tenant's row; times in seconds since the epoch. written: Slurm's accounting had it."""

    record: TenantRecord
    opened: float
    closed: float | None = None
    written: float | None = None


def put_tenant(db: sqlite3.Connection, kept: Kept) -> None:
    record = kept.record
    db.execute(
        "INSERT OR REPLACE INTO tenants "
        "(job_id, uid, gang, options, lock, opened, closed, written) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(record.job_id, record.uid, json.dumps(record.gang), record.options, record.lock),
            *(kept.opened, kept.closed, kept.written),
        ),
    )


def put_usage(db: sqlite3.Connection, job_id: int, usage: Mapping[str, Usage]) -> None:
    db.execute("DELETE FROM usage WHERE job_id = ?", (job_id,))
    db.executemany(
        "INSERT INTO usage (job_id, uuid, usage) VALUES (?, ?, ?)",
        [(job_id, uuid, json.dumps(asdict(used))) for uuid, used in usage.items()],
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


def drop_written_before(db: sqlite3.Connection, time: float) -> None:
    """Forget tenants that Slurm's accounting has since before then."""
    old = "SELECT job_id FROM tenants WHERE written < ?"
    db.execute(f"DELETE FROM usage WHERE job_id IN ({old})", (time,))
    db.execute("DELETE FROM tenants WHERE written < ?", (time,))


def tenants(db: sqlite3.Connection, where: str, *values: object) -> list[Kept]:
    """The tenants of a condition; a row that makes no sense is logged and left out."""
    rows = db.execute(
        "SELECT job_id, uid, gang, options, lock, opened, closed, written "
        f"FROM tenants WHERE {where}",
        values,
    ).fetchall()
    found = []
    for job_id, uid, gang, options, lock, *times in rows:
        try:
            record = TenantRecord(
                job_id, uid, tuple(json.loads(gang)), options, lock, _usage(db, job_id)
            )
        except (ValueError, TypeError) as fault:
            log.error("what the store has of job %s makes no sense (%s); left out", job_id, fault)
        else:
            found.append(Kept(record, *times))
    return found


def _usage(db: sqlite3.Connection, job_id: int) -> dict[str, Usage]:
    rows = db.execute("SELECT uuid, usage FROM usage WHERE job_id = ?", (job_id,))
    # A newer release may have counted more than this one knows.
    return {
        uuid: Usage(**{k: v for k, v in json.loads(text).items() if k in USAGE_FIELDS})
        for uuid, text in rows
    }


def stepds(db: sqlite3.Connection) -> list[tuple[ProcessId, int]]:
    rows = _rows(db, "SELECT pid, start, job_id FROM stepds")
    return [(ProcessId(pid, start), job_id) for pid, start, job_id in rows]


def settings(db: sqlite3.Connection) -> dict[tuple[str, str], str]:
    """By device (UUID or "*") and key."""
    rows = _rows(db, "SELECT device, key, value FROM settings")
    return {(device, key): value for device, key, value in rows}


def epoch(db: sqlite3.Connection) -> int | None:
    rows = _rows(db, "SELECT epoch FROM epochs")
    return int(rows[0][0]) if rows else None


def _rows(db: sqlite3.Connection, query: str) -> list[tuple[Any, ...]]:
    """The rows; none where an older release's file, which could not be changed, has no table."""
    try:
        return db.execute(query).fetchall()
    except sqlite3.OperationalError as fault:
        if "no such table" in str(fault):
            return []
        raise
