"""What steps have had, in the store: it is kept, bounded, goes with its run, and may be damaged."""

from __future__ import annotations

import contextlib
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from leased.store import contents, store
from leased.usage.step_usage import OTHERS, StepUsage
from tests.conftest import OpenStore
from tests.store.test_store import sql, tenant, used


def step(ns: int, since: float = 10.0) -> StepUsage:
    return StepUsage(since, since + 5, used(ns))


def test_they_are_there_for_the_next_daemon_and_after_the_end(
    tmp_path: Path, open_store: OpenStore
) -> None:
    path = tmp_path / "usage.db"
    first = open_store(path)
    first.open_tenant(tenant(7))
    first.save({7: used(5)}, 5, steps={7: {"batch": step(2), "0": step(3)}})
    first.close()
    second = open_store(path)
    (record,) = second.open_tenants()
    assert record.steps == {"batch": step(2), "0": step(3)}
    second.close_tenant(7, used(9), {"0": step(7)})
    second.close()
    third = open_store(path)
    (ended,) = third.unsettled()
    assert ended.steps == {"batch": step(2), "0": step(7)}
    third.settle([ended.run])
    third.close()
    fourth = open_store(path)
    (last,) = fourth.find(7)
    assert last.steps == ended.steps


def test_each_run_of_a_job_has_its_own(tmp_path: Path, open_store: OpenStore) -> None:
    kept = open_store(tmp_path / "usage.db")
    for ns in (3, 4):
        kept.open_tenant(tenant(7))
        kept.save({}, 5, steps={7: {"0": step(ns)}})
        kept.close_tenant(7, used(ns))
    assert [run.steps["0"].lease_ns for run in kept.runs(7)] == [3, 4]


def test_only_damaged_rows_are_set_aside(tmp_path: Path, open_store: OpenStore) -> None:
    path = tmp_path / "usage.db"
    before = open_store(path)
    before.open_tenant(tenant(7))
    before.save({7: used(5)}, 5, steps={7: {"0": step(1), "1": step(2)}})
    before.close()
    sql(path, "UPDATE steps SET usage = '[1]' WHERE step = '0'")
    after = open_store(path)
    (record,) = after.open_tenants()
    assert record.steps == {"1": step(2)}
    assert record.usage == used(5)


def test_steps_on_the_disk_are_added_to_those_in_memory(
    tmp_path: Path, open_store: OpenStore
) -> None:
    path = tmp_path / "usage.db"
    before = open_store(path)
    before.open_tenant(tenant(7))
    before.save({7: used(5)}, 5, steps={7: {"0": step(5)}})
    (record,) = before.open_tenants()
    before.close()
    memory = contents.Contents()
    memory.begin(replace(record, usage={}, steps={}))
    memory.set_steps(7, {"0": step(3, 20.0)})
    with contextlib.closing(sqlite3.connect(path)) as db:
        db.row_factory = sqlite3.Row
        memory.take_in(db)
    assert memory.open[7].steps == {"0": StepUsage(10.0, 25.0, used(8))}
    memory.set_steps(7, {"0": step(4, 20.0)})
    assert memory.open[7].steps["0"].lease_ns == 9


def test_rows_of_forgotten_runs_go_and_of_settled_ones_so_many_stay(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "usage.db"
    monkeypatch.setattr(store, "KEEP_SETTLED", 3)
    monkeypatch.setattr(store, "KEEP_STEPS", 4)
    monkeypatch.setattr(store, "DROP_OLD_S", 0.0)
    kept = open_store(path)
    for job in range(1, 6):
        kept.open_tenant(tenant(job))
        kept.close_tenant(job, used(1), {"0": step(1), "1": step(1)})
    kept.open_tenant(tenant(9))
    kept.save({}, 5, steps={9: {"0": step(1)}})
    for run in [record.run for record in kept.unsettled()]:
        kept.settle([run])
    kept.settle([])
    left = sql(path, "SELECT job_id, step FROM steps ORDER BY job_id, step")
    assert left == [(4, "0"), (4, "1"), (5, "0"), (5, "1"), (9, "0")]


def test_the_steps_that_wait_for_accounting_are_limited(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(contents, "STEPS_MOST", 4)
    kept = open_store(tmp_path / "usage.db")
    for job in (1, 2):
        kept.open_tenant(tenant(job))
        steps = {str(number): step(9 - number) for number in range(3)}
        kept.close_tenant(job, used(24), steps)
    first, second = kept.unsettled()
    assert set(first.steps) == {"0", "1", "2"}
    assert set(second.steps) == {OTHERS}
    assert second.steps[OTHERS].lease_ns == 24, "nothing is lost but whose it was"
