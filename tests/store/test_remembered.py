"""What policies remember of open tenants, in the store: it is kept, ends with them, and may be
damaged or missing."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from leased.core.policy import PolicyState
from leased.store.store import Store
from tests.conftest import OpenStore
from tests.store.test_store import sql, tenant, used

FAIR = PolicyState("fair", '{"1": {"GPU-x": -5}}')


ROWS = "SELECT job_id, policy, state FROM remembered ORDER BY job_id"


def two_open(path: Path) -> Store:
    store = Store(path)
    for job in (1, 2):
        store.open_tenant(tenant(job))
    store.save({}, 5, {1: FAIR, 2: PolicyState("fair", "{}")})
    return store


def test_it_is_there_for_the_next_daemon_and_not_after_the_end(
    tmp_path: Path, open_store: OpenStore
) -> None:
    path = tmp_path / "usage.db"
    two_open(path).close()
    store = open_store(path)
    assert [t.remembered for t in store.open_tenants()] == [FAIR, PolicyState("fair", "{}")]
    store.close_tenant(1, used(3))
    assert [t.remembered for t in store.unsettled()] == [None]
    assert [row[0] for row in sql(path, ROWS)] == [2]
    store.save({}, 6, {2: PolicyState("fcfs", "")})
    assert sql(path, ROWS) == [], "another policy has the device, which remembers nothing"


def test_damaged_states_are_left_out_with_one_warning(
    tmp_path: Path, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "usage.db"
    two_open(path).close()
    sql(path, "UPDATE remembered SET state = x'ff00'")
    with caplog.at_level(logging.WARNING, "gpu-leased"):
        store = open_store(path)
    assert [(t.job_id, t.remembered) for t in store.open_tenants()] == [(1, None), (2, None)]
    (said,) = caplog.messages
    assert "what the policies had stored of 2 jobs cannot be used" in said
    store.save({}, 6, {1: FAIR})
    assert sql(path, ROWS) == [(1, *FAIR)]
