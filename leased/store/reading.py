"""Reads the rows of the store, and finds those that make no sense."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple, TypeVar

from leased.base.words import count
from leased.core.policy import PolicyState
from leased.processes.identity import ProcessId
from leased.store import columns
from leased.store.columns import Row
from leased.store.records import LAST_JOB, LAST_UID, TenantRecord
from leased.usage.step_usage import StepUsage
from leased.usage.usage import Usage

log = logging.getLogger("gpu-leased")

USAGE_FIELDS = {field.name for field in fields(Usage)}
MOST = 2**63 - 1  # that SQLite keeps
LAST_PID = 1 << 22
LAST_EPOCH = 1 << 62  # leases count on from there; clients' messages have 64 bits
UUID_LONGEST = 96
NAME_LONGEST = 256  # of a policy, or of who parks a job
GANG_MOST = 4096
LOCKS = ("on", "off", "auto")

T = TypeVar("T")


class Bad(NamedTuple):
    """A row that makes no sense."""

    table: str
    rowid: int
    why: str


def tell_bad(rows: Sequence[Bad]) -> None:
    """Log which rows are set aside: one line for each; what policies have stored, one for all."""
    for bad in rows:
        if bad.table != "remembered":
            log.error(
                "a row of the table %s cannot be used and is set aside: %s", bad.table, bad.why
            )
    remembered = [bad for bad in rows if bad.table == "remembered"]
    if remembered:
        log.warning(
            "what the policies had stored of %s cannot be used (%s) and is set aside: the "
            "turns of these jobs are counted from now on",
            *(count(len(remembered), "job"), remembered[0].why),
        )


class Reader:
    """Reads the rows of a database that make sense; `bad` has the others."""

    def __init__(self, db: sqlite3.Connection):
        self.db = db
        self.bad: list[Bad] = []

    def tenants(self) -> list[TenantRecord]:
        """The tenants that are open."""
        return list(self._good("tenants", "", (), self._tenant))

    def ended(self, where: str, *values: object) -> list[TenantRecord]:
        """The ended runs for which an SQL condition holds."""
        found = self._good("ended", f"WHERE {where}", values, _ended)
        return [self._with_steps(record) for record in found]

    def stepds(self) -> list[tuple[ProcessId, int]]:
        return list(self._good("stepds", "", (), stepd_of))

    def settings(self) -> dict[tuple[str, str], str]:
        """The settings by device (UUID or "*") and key."""
        return dict(self._good("settings", "", (), _setting))

    def epoch(self) -> int | None:
        found = list(
            self._good("epochs", "", (), lambda row: columns.whole(row, "epoch", 0, LAST_EPOCH))
        )
        return max(found, default=None)

    def _tenant(self, row: Row) -> TenantRecord:
        job_id = columns.whole(row, "job_id", 1, LAST_JOB)
        usage = dict(self._good("usage", "WHERE job_id = ?", (job_id,), _usage))
        record = record_of(row, usage, totals_of(columns.parsed(row, "totals")))
        remembered = self._good("remembered", "WHERE job_id = ?", (job_id,), _remembered)
        who = self._good(
            "parked",
            "WHERE job_id = ?",
            (job_id,),
            lambda row: columns.text(row, "who", NAME_LONGEST),
        )
        found = replace(record, remembered=next(remembered, None), parked_by=next(who, None))
        return self._with_steps(found)

    def _with_steps(self, record: TenantRecord) -> TenantRecord:
        where = "WHERE job_id = ? AND opened = ?"
        return replace(record, steps=dict(self._good("steps", where, record.run, _step)))

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
        raise ValueError("gang is not a list of devices")
    lock = columns.text(row, "lock")
    if lock not in LOCKS:
        raise ValueError(f"lock is {lock[:40]!r}")
    closed, settled = [
        None if row.get(name) is None else columns.seconds(row, name)
        for name in ("closed", "written")
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
        name=columns.text(row, "name", NAME_LONGEST),
        start=columns.whole(row, "start", 0, MOST),
        nodes=_nodes(row),
    )


def _nodes(row: Row) -> tuple[str, ...]:
    """None where an older release has written the row."""
    nodes = columns.parsed(row, "nodes") if "nodes" in row else []
    if not isinstance(nodes, list) or not all(isinstance(name, str) for name in nodes):
        raise ValueError("nodes is not a list of names")
    return tuple(nodes)


def _ended(row: Row) -> TenantRecord:
    said = columns.parsed(row, "usage")
    if not isinstance(said, dict) or row["closed"] is None:
        raise ValueError("usage is not an object, or it has not ended")
    return record_of(row, {uuid: _counted(used) for uuid, used in said.items()}, {})


def _step(row: Row) -> tuple[str, StepUsage]:
    said = columns.parsed(row, "usage")
    if not isinstance(said, dict):
        raise ValueError("usage is not an object")
    usage = {uuid: _counted(used) for uuid, used in said.items()}
    since, until = columns.seconds(row, "since"), columns.seconds(row, "until")
    return columns.text(row, "step", NAME_LONGEST), StepUsage(since, until, usage)


def _usage(row: Row) -> tuple[str, Usage]:
    return columns.text(row, "uuid", UUID_LONGEST), _counted(columns.parsed(row, "usage"))


def _remembered(row: Row) -> PolicyState:
    return PolicyState(columns.text(row, "policy", NAME_LONGEST), columns.text(row, "state"))


def _counted(said: Any) -> Usage:
    if not isinstance(said, dict):
        raise ValueError("usage is not an object")
    # A newer release may have counted more than this one knows.
    known = [name for name in said if name in USAGE_FIELDS]
    return Usage(**{name: columns.whole(said, name, 0, MOST) for name in known})


def totals_of(said: Any) -> dict[str, int]:
    if not isinstance(said, dict):
        raise ValueError("totals is not an object")
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
