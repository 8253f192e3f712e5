"""Who parked open tenants, in the store: it is kept, ends with them, and may be damaged or
missing."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from leased.store.store import Store
from tests.store.test_store import tenant, used


def rows(path: Path) -> list[tuple[int, str]]:
    with contextlib.closing(sqlite3.connect(path)) as db:
        return list(db.execute("SELECT job_id, who FROM parked ORDER BY job_id"))


def change(path: Path, script: str) -> None:
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.executescript(script)


def two_parked(path: Path) -> None:
    store = Store(path)
    for job in (1, 2):
        store.open_tenant(tenant(job))
    store.save({}, 5, parked={1: "user 1000", 2: "limits.park_after"})
    store.close()


def parked(store: Store) -> dict[int, str | None]:
    return {record.job_id: record.parked_by for record in store.open_tenants()}


def test_it_is_there_for_the_next_daemon_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    two_parked(path)
    store = Store(path)
    assert parked(store) == {1: "user 1000", 2: "limits.park_after"}
    store.save({}, 6, parked={1: None, 7: "user 1"})
    assert rows(path) == [(2, "limits.park_after")], "7 is no tenant"
    store.close_tenant(2, used(3))
    assert [record.parked_by for record in store.unsettled()] == [None]
    assert rows(path) == []
    store.close()


def test_another_run_of_the_job_is_not_parked(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    two_parked(path)
    store = Store(path)
    store.open_tenant(tenant(1))
    assert parked(store) == {1: None, 2: "limits.park_after"}
    store.close()
    assert rows(path) == [(2, "limits.park_after")]


def test_a_damaged_row_is_set_aside(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    two_parked(path)
    change(path, "UPDATE parked SET who = x'ff00' WHERE job_id = 1")
    store = Store(path)
    assert parked(store) == {1: None, 2: "limits.park_after"}
    store.save({}, 6)
    store.close()
    assert rows(path) == [(2, "limits.park_after")]


def test_what_is_left_of_a_run_that_is_not_there_is_not_the_next_ones(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    two_parked(path)
    change(path, "DELETE FROM tenants WHERE job_id = 1")
    store = Store(path)
    assert parked(store) == {2: "limits.park_after"}
    store.open_tenant(tenant(1))
    assert parked(store) == {1: None, 2: "limits.park_after"}
    store.close()
    assert rows(path) == [(2, "limits.park_after")]
