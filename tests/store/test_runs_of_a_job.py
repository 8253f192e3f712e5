"""The store tells the runs of a job apart: requeued jobs, restarts, and files of other releases."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leased.core.arbiter import Usage
from leased.store import database, read_only, schema, store
from leased.store.records import TenantRecord
from leased.store.registrations import Registrations
from leased.store.store import Store
from tests.conftest import OpenStore
from tests.store.test_store import UUID, tenant, used

# What 0.1.0 wrote and read: its statements, word for word.
OLD_TENANTS = (
    "SELECT job_id, uid, gang, options, lock, opened, closed, written "
    "FROM tenants WHERE closed IS NULL OR written IS NULL"
)
OLD_PUT = (
    "INSERT OR REPLACE INTO tenants (job_id, uid, gang, options, lock, opened, closed, written) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
OLD_PUT_USAGE = "INSERT INTO usage (job_id, uuid, usage) VALUES (?, ?, ?)"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "usage.db"


@pytest.fixture
def db(path: Path) -> Iterator[Store]:
    made = Store(path)
    yield made
    made.close()


def lease_ns(records: list[TenantRecord]) -> list[int]:
    return [record.usage[UUID].lease_ns for record in records]


Reopen = Callable[[Store], Store]


@pytest.fixture
def reopened(open_store: OpenStore) -> Reopen:
    """Close a store and open its file again, as the next daemon does."""

    def reopen(store: Store) -> Store:
        store.close()
        return open_store(store.path)

    return reopen


def test_a_requeued_job_keeps_the_usage_of_its_first_run(db: Store, reopened: Reopen) -> None:
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(5))
    db.open_tenant(tenant(7))
    assert lease_ns(db.unsettled()) == [5]
    db.close_tenant(7, used(8))
    for again in (db, reopened(db)):
        assert lease_ns(again.unsettled()) == [5, 8]
        (found,) = again.find(7)
        assert found.usage == used(8)
        assert lease_ns(again.runs(7)) == [5, 8]


def test_first_run_that_is_written_late_does_not_settle_the_second(
    db: Store, reopened: Reopen
) -> None:
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(5))
    (first,) = db.unsettled()
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(8))
    db.settle([first.run])
    assert lease_ns(db.unsettled()) == [8]
    assert lease_ns(reopened(db).unsettled()) == [8]
    db.settle([first.run])  # again: nothing happens
    assert lease_ns(db.unsettled()) == [8]


def test_first_run_that_is_written_late_does_not_end_the_second(
    db: Store, reopened: Reopen
) -> None:
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(5))
    (first,) = db.unsettled()
    db.open_tenant(tenant(7))
    db.settle([first.run])
    db.save({7: used(3)}, 1)
    again = reopened(db)
    assert lease_ns(again.open_tenants()) == [3]
    assert again.unsettled() == []


def test_a_run_whose_end_nobody_told_ends_with_the_next(db: Store) -> None:
    db.open_tenant(tenant(7))
    db.save({7: used(5)}, 1)
    db.open_tenant(tenant(7))
    assert lease_ns(db.unsettled()) == [5]
    assert [record.usage for record in db.open_tenants()] == [{}]


def test_runs_of_one_moment_are_two(
    db: Store, monkeypatch: pytest.MonkeyPatch, reopened: Reopen
) -> None:
    monkeypatch.setattr(store.time, "time", lambda: 1000.0)  # type: ignore[attr-defined]
    for ns in (5, 8):
        db.open_tenant(tenant(7))
        db.close_tenant(7, used(ns))
    assert lease_ns(db.unsettled()) == [5, 8]
    assert lease_ns(reopened(db).unsettled()) == [5, 8]


def test_settled_runs_are_forgotten_in_time_and_number(
    db: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "KEEP_SETTLED", 2)
    monkeypatch.setattr(store, "DROP_OLD_S", -1.0)
    for ns in (1, 2, 3):
        db.open_tenant(tenant(7))
        db.close_tenant(7, used(ns))
        db.settle([db.unsettled()[0].run])
    assert lease_ns(db.runs(7)) == [2, 3]
    monkeypatch.setattr(store, "KEEP_SETTLED_S", -1.0)
    db.settle([])
    assert db.runs(7) == []


def test_everything_of_a_record_is_kept(db: Store, reopened: Reopen) -> None:
    given = TenantRecord(
        *(7, 1000, (UUID, "GPU-y"), "tq:5s,lock:on", "on", {}), totals={UUID: 5, "GPU-y": 6}
    )
    db.open_tenant(given)
    db.widen(7, {UUID: 5, "GPU-y": 6, "GPU-z": 7})
    db.resolve(7, "tq:6s", {UUID: 5, "GPU-y": 6, "GPU-z": 8})
    db.save({7: used(3)}, 1)
    (before,) = db.open_tenants()
    (after,) = reopened(db).open_tenants()
    assert after == before
    assert dataclasses.replace(after, opened=0.0) == TenantRecord(
        *(7, 1000, (UUID, "GPU-y", "GPU-z"), "tq:6s", "on", used(3)),
        totals={UUID: 5, "GPU-y": 6, "GPU-z": 8},
    )


# -- other releases ------------------------------------------------------------


def of_0_1_0(path: Path) -> None:
    """A file as 0.1.0 leaves it: one tenant runs, one has ended, one is in the accounting."""
    with sqlite3.connect(path) as db:
        for version in (1000, 1001):
            db.executescript(schema.MIGRATIONS[version])
        for row in (
            (7, 1000, '["GPU-x"]', "tq:5", "auto", 10.0, None, None),
            (8, 1000, '["GPU-x"]', "", "on", 11.0, 12.0, None),
            (9, 1000, '["GPU-x"]', "", "off", 12.0, 13.0, 14.0),
        ):
            db.execute(OLD_PUT, row)
            db.execute(OLD_PUT_USAGE, (row[0], "GPU-x", f'{{"lease_ns": {row[0]}}}'))
        db.execute("INSERT INTO epochs VALUES (1, 99)")
        db.execute("INSERT INTO settings VALUES ('*', 'lock', 'on')")
        db.execute(f"PRAGMA application_id={schema.APPLICATION_ID}")
        db.execute("PRAGMA user_version=1001")
    db.close()


def test_a_file_of_0_1_0_is_taken_over(path: Path) -> None:
    of_0_1_0(path)
    for _ in range(2):
        db = Store(path)
        (running,) = db.open_tenants()
        assert (running.job_id, running.opened, running.totals) == (7, 10.0, {})
        assert running.usage == {"GPU-x": Usage(lease_ns=7)}
        assert [(r.run, r.closed, r.lock) for r in db.unsettled()] == [((8, 11.0), 12.0, "on")]
        (written,) = db.find(9)
        assert (written.settled, written.usage) == (14.0, {"GPU-x": Usage(lease_ns=9)})
        assert (db.epoch(), db.settings()) == (99, {("*", "lock"): "on"})
        db.save({}, 100)
        db.save({}, 99)
        db.close()
    with sqlite3.connect(path) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (schema.VERSION,)
    raw.close()


def test_going_back_to_0_1_0_and_forth_loses_nothing(path: Path) -> None:
    assert schema.VERSION // schema.MAJOR_STEP == 1, "0.1.0 opens what is of major 1"
    db = Store(path)
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(5))
    db.open_tenant(tenant(7))
    db.open_tenant(tenant(8))
    db.save({7: used(6), 8: used(7)}, 5)
    db.close()
    with sqlite3.connect(path) as raw:  # 0.1.0: it reads its rows, and closes both jobs
        rows = raw.execute(OLD_TENANTS).fetchall()
        assert [(row[0], row[6]) for row in rows] == [(7, None), (8, None)]
        for row in rows:
            raw.execute(OLD_PUT, (*row[:6], 2e9, None))
            raw.execute("DELETE FROM usage WHERE job_id = ?", row[:1])
            raw.execute(OLD_PUT_USAGE, (row[0], UUID, '{"lease_ns": 9}'))
    raw.close()
    db = Store(path)
    assert db.open_tenants() == []
    assert sorted(lease_ns(db.unsettled())) == [5, 9, 9]
    assert len({record.run for record in db.unsettled()}) == 3
    db.close()


@contextlib.contextmanager
def unreadable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The database can neither be written nor read."""

    def refuse(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(database, "connect", refuse)
        patch.setattr(read_only, "connect_to_read", refuse)
        yield


def test_a_disk_that_can_be_read_later_adds_what_it_has(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = Store(path)
    for job in (1, 2):
        db.open_tenant(tenant(job))
    db.save({1: used(3), 2: used(4)}, 50)
    db.close()

    with unreadable(monkeypatch):
        db = Store(path)
        assert db.open_tenants() == []
        db.open_tenant(tenant(2))  # its next step registers
        assert db.fault is not None
    db.flush()
    assert db.fault is None
    assert {r.job_id: dict(r.usage) for r in db.open_tenants()} == {1: used(3), 2: {}}
    assert lease_ns(db.unsettled()) == [4]
    db.close()


def test_usage_on_a_disk_that_can_be_read_later_is_not_lost(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile jobs go on as they were registered, and one of them ends."""
    files = Registrations(path.parent / "jobs")
    db = Store(path, files)
    for job in (1, 2):
        db.open_tenant(tenant(job))
    before = {UUID: Usage(lease_ns=30, handoffs=4, peak_bytes=90)}
    db.save({1: before, 2: before}, 50)
    db.close()
    with unreadable(monkeypatch):
        db = Store(path, files)
        assert [record.job_id for record in db.open_tenants()] == [1, 2]
        since = {UUID: Usage(lease_ns=7, handoffs=1, peak_bytes=60)}
        db.save({1: since}, 60)
        db.close_tenant(2, since)
    db.flush()
    both = {UUID: Usage(lease_ns=37, handoffs=5, peak_bytes=90)}
    assert {r.job_id: dict(r.usage) for r in db.open_tenants()} == {1: both}
    assert [(r.job_id, dict(r.usage)) for r in db.unsettled()] == [(2, both)]
    more = {UUID: Usage(lease_ns=9, handoffs=1, peak_bytes=99)}
    db.save({1: more}, 61)
    db.close()
    db = Store(path, files)
    last = {UUID: Usage(lease_ns=39, handoffs=5, peak_bytes=99)}
    assert {r.job_id: dict(r.usage) for r in db.open_tenants()} == {1: last}
    assert [(r.job_id, dict(r.usage)) for r in db.unsettled()] == [(2, both)]
    db.close()


def test_fields_of_a_record_are_those_of_the_tables() -> None:
    names = {field.name for field in dataclasses.fields(TenantRecord)}
    for table, also in (("tenants", {"totals"}), ("ended", {"usage"})):
        columns = {c.replace("written", "settled") for c in schema.TABLES[table].split(", ")}
        assert columns | {"usage", "totals", "remembered", "parked_by", "steps"} == names | also
