"""Who parked open tenants, in the store: it is kept, ends with them, and may be damaged or
missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from leased.store.store import Store
from tests.conftest import OpenStore
from tests.store.test_store import sql, tenant, used

ROWS = "SELECT job_id, who FROM parked ORDER BY job_id"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of a store with two that are parked."""
    store = Store(tmp_path / "usage.db")
    for job in (1, 2):
        store.open_tenant(tenant(job))
    store.save({}, 5, parked={1: "user 1000", 2: "limits.park_after"})
    store.close()
    return store.path


def parked(store: Store) -> dict[int, str | None]:
    return {record.job_id: record.parked_by for record in store.open_tenants()}


def test_it_is_there_for_the_next_daemon_until_it_ends(path: Path, open_store: OpenStore) -> None:
    store = open_store(path)
    assert parked(store) == {1: "user 1000", 2: "limits.park_after"}
    store.save({}, 6, parked={1: None, 7: "user 1"})
    assert sql(path, ROWS) == [(2, "limits.park_after")], "7 is no tenant"
    store.close_tenant(2, used(3))
    assert [record.parked_by for record in store.unsettled()] == [None]
    assert sql(path, ROWS) == []


def test_another_run_of_the_job_is_not_parked(path: Path, open_store: OpenStore) -> None:
    store = open_store(path)
    store.open_tenant(tenant(1))
    assert parked(store) == {1: None, 2: "limits.park_after"}
    assert sql(path, ROWS) == [(2, "limits.park_after")]


def test_a_damaged_row_is_set_aside(path: Path, open_store: OpenStore) -> None:
    sql(path, "UPDATE parked SET who = x'ff00' WHERE job_id = 1")
    store = open_store(path)
    assert parked(store) == {1: None, 2: "limits.park_after"}
    store.save({}, 6)
    assert sql(path, ROWS) == [(2, "limits.park_after")]


def test_what_is_left_of_a_run_that_is_not_there_is_not_the_next_ones(
    path: Path, open_store: OpenStore
) -> None:
    sql(path, "DELETE FROM tenants WHERE job_id = 1")
    store = open_store(path)
    assert parked(store) == {2: "limits.park_after"}
    store.open_tenant(tenant(1))
    assert parked(store) == {1: None, 2: "limits.park_after"}
    assert sql(path, ROWS) == [(2, "limits.park_after")]
