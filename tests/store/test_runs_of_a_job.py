"""The store tells the runs of a job apart: requeued jobs, and restarts."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
from collections.abc import Iterator

import pytest

from leased.store import database, read_only, schema, store
from leased.store.records import TenantRecord
from leased.store.store import Store
from leased.usage.usage import Usage
from tests.store.conftest import Begin
from tests.store.test_store import UUID, tenant, used

# Fields of a record that stand in tables of their own, or are not of every record.
OF_OTHER_TABLES = {"usage", "totals", "remembered", "parked_by", "steps", "closed", "settled"}


@pytest.fixture
def db(begin: Begin) -> Store:
    return begin()


def lease_ns(records: list[TenantRecord]) -> list[int]:
    return [record.usage[UUID].lease_ns for record in records]


def test_a_requeued_job_keeps_the_usage_of_its_first_run(db: Store, begin: Begin) -> None:
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(5))
    db.open_tenant(tenant(7))
    assert lease_ns(db.unsettled()) == [5]
    db.close_tenant(7, used(8))
    for again in (db, begin()):
        assert lease_ns(again.unsettled()) == [5, 8]
        (found,) = again.find(7)
        assert found.usage == used(8)
        assert lease_ns(again.runs(7)) == [5, 8]


def test_first_run_that_is_written_late_does_not_settle_the_second(db: Store, begin: Begin) -> None:
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(5))
    (first,) = db.unsettled()
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(8))
    db.settle([first.run])
    assert lease_ns(db.unsettled()) == [8]
    assert lease_ns(begin().unsettled()) == [8]
    db.settle([first.run])  # again: nothing happens
    assert lease_ns(db.unsettled()) == [8]


def test_first_run_that_is_written_late_does_not_end_the_second(db: Store, begin: Begin) -> None:
    db.open_tenant(tenant(7))
    db.close_tenant(7, used(5))
    (first,) = db.unsettled()
    db.open_tenant(tenant(7))
    db.settle([first.run])
    db.save({7: used(3)}, 1)
    again = begin()
    assert lease_ns(again.open_tenants()) == [3]
    assert again.unsettled() == []


def test_a_run_whose_end_nobody_told_ends_with_the_next(db: Store) -> None:
    db.open_tenant(tenant(7))
    db.save({7: used(5)}, 1)
    db.open_tenant(tenant(7))
    assert lease_ns(db.unsettled()) == [5]
    assert [record.usage for record in db.open_tenants()] == [{}]


def test_runs_of_one_moment_are_two(
    db: Store, monkeypatch: pytest.MonkeyPatch, begin: Begin
) -> None:
    monkeypatch.setattr(store.time, "time", lambda: 1000.0)  # type: ignore[attr-defined]
    for ns in (5, 8):
        db.open_tenant(tenant(7))
        db.close_tenant(7, used(ns))
    assert lease_ns(db.unsettled()) == [5, 8]
    assert lease_ns(begin().unsettled()) == [5, 8]


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


def test_everything_of_a_record_is_kept(db: Store, begin: Begin) -> None:
    given = TenantRecord(
        *(7, 1000, (UUID, "GPU-y"), "tq:5s,lock:on", "on", {}), totals={UUID: 5, "GPU-y": 6}
    )
    db.open_tenant(given)
    db.place(7, {UUID: 5, "GPU-y": 6, "GPU-z": 7})
    db.resolve(7, "tq:6s", {UUID: 5, "GPU-y": 6, "GPU-z": 8})
    db.save({7: used(3)}, 1)
    (before,) = db.open_tenants()
    (after,) = begin().open_tenants()
    assert after == before
    assert dataclasses.replace(after, opened=0.0) == TenantRecord(
        *(7, 1000, (UUID, "GPU-y", "GPU-z"), "tq:6s", "on", used(3)),
        totals={UUID: 5, "GPU-y": 6, "GPU-z": 8},
    )


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
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = begin()
    for job in (1, 2):
        db.open_tenant(tenant(job))
    db.save({1: used(3), 2: used(4)}, 50)
    db.close()
    with unreadable(monkeypatch):
        db = begin()
        assert db.open_tenants() == []
        db.open_tenant(tenant(2))  # its next step registers
        assert db.fault is not None
    db.flush()
    assert db.fault is None
    assert {r.job_id: dict(r.usage) for r in db.open_tenants()} == {1: used(3), 2: {}}
    assert lease_ns(db.unsettled()) == [4]


def test_usage_on_a_disk_that_can_be_read_later_is_not_lost(
    begin: Begin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile jobs go on as they were registered, and one of them ends."""
    db = begin(files=True)
    for job in (1, 2):
        db.open_tenant(tenant(job))
    before = {UUID: Usage(lease_ns=30, handoffs=4, peak_bytes=90)}
    db.save({1: before, 2: before}, 50)
    db.close()
    with unreadable(monkeypatch):
        db = begin(files=True)
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
    db = begin(files=True)
    last = {UUID: Usage(lease_ns=39, handoffs=5, peak_bytes=99)}
    assert {r.job_id: dict(r.usage) for r in db.open_tenants()} == {1: last}
    assert [(r.job_id, dict(r.usage)) for r in db.unsettled()] == [(2, both)]


def test_fields_of_a_record_are_those_of_the_tables() -> None:
    names = {field.name for field in dataclasses.fields(TenantRecord)}
    for table in ("tenants", "ended"):
        columns = {c.replace("written", "settled") for c in schema.TABLES[table].split(", ")}
        assert columns | OF_OTHER_TABLES == names
