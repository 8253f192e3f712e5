"""A disk that gives nothing for a while: whichever read fails first, no usage is lost."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from leased.store.contents import Contents
from tests.conftest import OpenStore
from tests.store.conftest import preloaded
from tests.store.test_store import tenant, used

# A previous daemon has left usage of 1000 for each job. For each number of reads that succeed: a
# daemon starts, counts 1 for each of its jobs, and has its disk back. It prints what came to light.
PROGRAM = """
import ctypes, json, shutil, sys
from pathlib import Path
from leased.store.registrations import Registrations
from leased.store.store import Store
from tests.store.conftest import preloaded
from tests.store.test_store import UUID, tenant, used

JOBS = range(1, 13)
folder, failing, killed = Path(sys.argv[1]), sys.argv[2].encode(), sys.argv[3] == "killed"
fail_reads = ctypes.CDLL(None).fail_reads

def begin(place):
    return Store(place / "usage.db", Registrations(place / "jobs"))

def usage(store):
    return {r.job_id: r.usage[UUID].lease_ns if r.usage else 0 for r in store.open_tenants()}

before = folder / "before"
before.mkdir(mode=0o700)
store = begin(before)
for job in JOBS:
    store.open_tenant(tenant(job))
store.save({job: used(1000) for job in JOBS}, 5)
if killed:
    before = Path(shutil.copytree(before, folder / "killed"))
store.close()

outcomes = []
for reads in range(1000):
    place = Path(shutil.copytree(before, folder / str(reads)))
    fail_reads(failing, reads)
    store = begin(place)
    failed = store.fault is not None
    store.save({job: used(had + 1) for job, had in usage(store).items()}, 6)
    fail_reads(failing, -1)
    store.flush()
    store.close()
    store = begin(place)
    outcomes.append((failed, sorted(set(usage(store).values())), len(usage(store)), store.fault,
                     [path.name for path in place.glob("*damaged*")]))
    store.close()
    shutil.rmtree(place)
    if not failed:
        break
print(json.dumps(outcomes))
"""


@pytest.mark.parametrize(
    ("failing", "left"),
    [("usage.db", "closed"), ("usage.db", "killed"), ("usage.db-wal", "killed")],
)
def test_usage_goes_on_when_the_disk_is_back(tmp_path: Path, failing: str, left: str) -> None:
    place = tmp_path / "stores"
    place.mkdir()
    outcomes = json.loads(
        preloaded("failing_reads.c", tmp_path, PROGRAM, str(place), failing, left)
    )
    assert len(outcomes) > 1
    assert [failed for failed, *_ in outcomes] == [True] * (len(outcomes) - 1) + [False]
    for reads, outcome in enumerate(outcomes):
        assert outcome[1:] == [[1001], 12, None, []], f"after {reads} reads: {outcome}"


def test_jobs_of_a_disk_that_gives_a_part_are_counted_once(
    tmp_path: Path, open_store: OpenStore
) -> None:
    store = open_store(tmp_path / "usage.db")
    store.open_tenant(tenant(1))
    store.save({1: used(1000)}, 5)
    store.close()
    db = sqlite3.connect(tmp_path / "usage.db")
    db.row_factory = sqlite3.Row
    contents = Contents()

    def refuse(_: int, table: str | None, *__: object) -> int:
        return sqlite3.SQLITE_DENY if table == "epochs" else sqlite3.SQLITE_OK

    db.set_authorizer(refuse)
    with pytest.raises(sqlite3.DatabaseError):
        contents.take_in(db)
    db.set_authorizer(lambda *_: sqlite3.SQLITE_OK)
    contents.take_in(db)
    db.close()
    assert {job: dict(r.usage) for job, r in contents.open.items()} == {1: used(1000)}


def test_a_page_that_is_damaged_is_damage(tmp_path: Path, open_store: OpenStore) -> None:
    """However often it is read."""
    path = tmp_path / "usage.db"
    store = open_store(path)
    for job in range(1, 13):
        store.open_tenant(tenant(job))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 4096)
    assert open_store(path).open_tenants() == []
    assert len(list(tmp_path.glob("usage.db.damaged-*"))) == 1
