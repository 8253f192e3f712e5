"""The rows of the store: what stands in each table of database.py, written and read."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, NamedTuple, TypeVar

from leased.core.policy import PolicyState
from leased.core.usage import Usage
from leased.processes.identity import ProcessId
from leased.store import columns
from leased.store.columns import Row

log = logging.getLogger("gpu-leased")

USAGE_FIELDS = {field.name for field in fields(Usage)}
MOST = 2**63 - 1  # that SQLite keeps
LAST_JOB = LAST_UID = 2**32 - 1
LAST_PID = 1 << 22
LAST_EPOCH = 1 << 62  # leases count on from there; clients' messages have 64 bits
UUID_LONGEST = 96
NAME_LONGEST = 256  # of a policy, or of who parks a job
GANG_MOST = 4096
LOCKS = ("on", "off", "auto")
ASIDE_MOST = 1000  # rows that were set aside are kept for a person to look at

Run = tuple[int, float]  # the job's id, and when the run began here
T = TypeVar("T")


@dataclass(frozen=True)
class TenantRecord:
    """One run of a job on this node: a job that is requeued begins another, with the same id.

    usage, totals: by device UUID; totals: bytes that the job sees as the device's.
    remembered: what its policy remembers of it while it is open; None: nothing.
    parked_by: who parked it, while it is open; None: it is not parked, or it is suspended.
    Times in seconds since the epoch. settled: it waits for Slurm's accounting no more.
    """

    job_id: int
    uid: int
    gang: tuple[str, ...]
    options: str  # as resolved when it began: --gpu-share's grammar, every key
    lock: str
    usage: Mapping[str, Usage]
    totals: Mapping[str, int] = field(default_factory=dict)
    opened: float = 0.0
    closed: float | None = None
    settled: float | None = None
    remembered: PolicyState | None = None
    parked_by: str | None = None

    @property
    def run(self) -> Run:
        return self.job_id, self.opened


class Bad(NamedTuple):
    """A row that makes no sense."""

    table: str
    rowid: int
    why: str


# -- writing -------------------------------------------------------------------


def put_open(db: sqlite3.Connection, job_id: int, record: TenantRecord | None) -> None:
    """A tenant that is open; None: it is not any more."""
    if record is None:
        db.execute("DELETE FROM tenants WHERE job_id = ?", (job_id,))
        return
    db.execute(
        "INSERT OR REPLACE INTO tenants (job_id, uid, gang, options, lock, opened, totals) "
        "VALUES (?, ?, ?, ?, ?, ?, ?)",
        (
            *(job_id, record.uid, json.dumps(record.gang), record.options, record.lock),
            *(record.opened, json.dumps(dict(record.totals))),
        ),
    )


def put_usage(db: sqlite3.Connection, job_id: int, usage: Mapping[str, Usage]) -> None:
    db.execute("DELETE FROM usage WHERE job_id = ?", (job_id,))
    db.executemany(
        "INSERT INTO usage (job_id, uuid, usage) VALUES (?, ?, ?)",
        [(job_id, uuid, json.dumps(asdict(used))) for uuid, used in usage.items()],
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
    usage = {uuid: asdict(used) for uuid, used in record.usage.items()}
    db.execute(
        "INSERT OR REPLACE INTO ended "
        "(job_id, opened, uid, gang, options, lock, closed, written, usage) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            *(record.job_id, record.opened, record.uid, json.dumps(record.gang), record.options),
            *(record.lock, record.closed, record.settled, json.dumps(usage)),
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


# -- reading -------------------------------------------------------------------


class Reader:
    """Reads what makes sense of a database; `bad` has the rows that do not."""

    def __init__(self, db: sqlite3.Connection):
        self.db = db
        self.bad: list[Bad] = []

    def tenants(self) -> list[TenantRecord]:
        """Those that are open, and those that an older release has closed."""
        return list(self._good("tenants", "", (), self._tenant))

    def ended(self, where: str, *values: object) -> list[TenantRecord]:
        """Ended runs of a condition."""
        return list(self._good("ended", f"WHERE {where}", values, _ended))

    def stepds(self) -> list[tuple[ProcessId, int]]:
        return list(self._good("stepds", "", (), stepd_of))

    def settings(self) -> dict[tuple[str, str], str]:
        """By device (UUID or "*") and key."""
        return dict(self._good("settings", "", (), _setting))

    def epoch(self) -> int | None:
        found = list(
            self._good("epochs", "", (), lambda row: columns.whole(row, "epoch", 0, LAST_EPOCH))
        )
        return max(found, default=None)

    def _tenant(self, row: Row) -> TenantRecord:
        job_id = columns.whole(row, "job_id", 1, LAST_JOB)
        usage = dict(self._good("usage", "WHERE job_id = ?", (job_id,), _usage))
        totals = totals_of(columns.parsed(row, "totals")) if row.get("totals") is not None else {}
        record = record_of(row, usage, totals)
        remembered = self._good("remembered", "WHERE job_id = ?", (job_id,), _remembered)
        who = self._good("parked", "WHERE job_id = ?", (job_id,), _parked_by)
        return replace(record, remembered=next(remembered, None), parked_by=next(who, None))

    def _good(
        self, table: str, where: str, values: tuple[object, ...], parse: Callable[[Row], T]
    ) -> Iterator[T]:
        """The rows as parsed; none where an older release's file, which could not be changed, has
        no such table."""
        try:
            found = self.db.execute(f"SELECT rowid AS number, * FROM {table} {where}", values)
        except sqlite3.OperationalError as fault:
            if "no such table" in str(fault):
                return
            raise
        for row in found.fetchall():
            try:
                yield parse(dict(row))
            except (ValueError, TypeError, KeyError) as fault:
                self.bad.append(Bad(table, row["number"], str(fault)))


def record_of(row: Row, usage: Mapping[str, Usage], totals: Mapping[str, int]) -> TenantRecord:
    gang = columns.parsed(row, "gang")
    if not isinstance(gang, list) or not 0 < len(gang) <= GANG_MOST or not all(map(_is_uuid, gang)):
        raise ValueError("gang is no list of devices")
    lock = columns.text(row, "lock")
    if lock not in LOCKS:
        raise ValueError(f"lock is {lock[:40]!r}")
    closed, settled = [
        None if row[name] is None else columns.seconds(row, name) for name in ("closed", "written")
    ]
    return TenantRecord(
        columns.whole(row, "job_id", 1, LAST_JOB),
        columns.whole(row, "uid", 0, LAST_UID),
        tuple(gang),
        columns.text(row, "options"),
        lock,
        usage,
        totals,
        columns.seconds(row, "opened"),
        closed,
        settled,
    )


def _ended(row: Row) -> TenantRecord:
    said = columns.parsed(row, "usage")
    if not isinstance(said, dict) or row["closed"] is None:
        raise ValueError("usage is no object, or it has not ended")
    return record_of(row, {uuid: _counted(used) for uuid, used in said.items()}, {})


def _usage(row: Row) -> tuple[str, Usage]:
    return columns.text(row, "uuid", UUID_LONGEST), _counted(columns.parsed(row, "usage"))


def _remembered(row: Row) -> PolicyState:
    return PolicyState(columns.text(row, "policy", NAME_LONGEST), columns.text(row, "state"))


def _parked_by(row: Row) -> str:
    return columns.text(row, "who", NAME_LONGEST)


def _counted(said: Any) -> Usage:
    if not isinstance(said, dict):
        raise ValueError("usage is no object")
    # A newer release may have counted more than this one knows.
    known = [name for name in said if name in USAGE_FIELDS]
    return Usage(**{name: columns.whole(said, name, 0, MOST) for name in known})


def totals_of(said: Any) -> dict[str, int]:
    if not isinstance(said, dict):
        raise ValueError("totals is no object")
    return {uuid: columns.whole(said, uuid, 0, MOST) for uuid in said}


def _is_uuid(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= UUID_LONGEST


def stepd_of(row: Row) -> tuple[ProcessId, int]:
    process = ProcessId(
        columns.whole(row, "pid", 1, LAST_PID), columns.whole(row, "start", 0, MOST)
    )
    return process, columns.whole(row, "job_id", 1, LAST_JOB)


def _setting(row: Row) -> tuple[tuple[str, str], str]:
    device, key, value = (columns.text(row, name, 256) for name in ("device", "key", "value"))
    return (device, key), value
