"""usage.db as disks, people and other programs leave it: leases go on, and the fault is said."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from leased.processes.identity import ProcessId
from leased.store import schema
from leased.usage.usage import Usage
from tests.fault.harness import JOBS, FaultyNode, faulty_node
from tests.store.test_store import Disk
from tests.support.node_requests import UUIDS, Node
from tests.support.tenant import register

CANNOT = "cannot be written"
PARTS = ("usage.db", "usage.db-wal", "usage.db-shm")


@pytest.fixture
def small_disk_node(short_dir: Path) -> Iterator[FaultyNode]:
    """A node whose state is on a small disk of its own, as node.disk."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    disk = Disk(short_dir / "leased" / "state")
    try:
        with faulty_node(short_dir) as made:
            made.disk = disk  # type: ignore[attr-defined]
            made.begin()
            yield made
    finally:
        disk.unmount()


@contextlib.contextmanager
def locked(path: Path, how: str) -> Iterator[None]:
    """Somebody else's sqlite3 has the file."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        if how == "exclusively":
            db.execute("PRAGMA locking_mode=EXCLUSIVE")
        db.execute("BEGIN EXCLUSIVE")
        yield
    finally:
        db.close()


def overwrite(folder: Path) -> None:
    (folder / "usage.db").write_bytes(b"no database at all" * 4096)


def cut(folder: Path) -> None:
    for name in PARTS[:2]:
        os.truncate(folder / name, 0)


def remove(folder: Path) -> None:
    for name in PARTS:
        (folder / name).unlink()


def remove_the_log(folder: Path) -> None:
    (folder / "usage.db-wal").unlink()


def put_a_directory(folder: Path) -> None:
    remove(folder)
    (folder / "usage.db").mkdir()
    (folder / "usage.db" / "file").touch()


def put_a_pipe(folder: Path) -> None:
    remove(folder)
    os.mkfifo(folder / "usage.db")


def put_another_programs(folder: Path) -> None:
    remove(folder)
    with contextlib.closing(sqlite3.connect(folder / "usage.db")) as db:
        db.execute("CREATE TABLE songs (title TEXT)")
        db.commit()


def drop_a_table(folder: Path) -> None:
    with contextlib.closing(sqlite3.connect(folder / "usage.db")) as db:
        db.execute("DROP TABLE usage")
        db.commit()


def cut_the_log(folder: Path) -> None:
    os.truncate(folder / "usage.db-wal", 0)


def overwrite_the_log(folder: Path) -> None:
    size = (folder / "usage.db-wal").stat().st_size
    with (folder / "usage.db-wal").open("r+b") as file:
        file.write(b"\xa5" * size)


DAMAGE = [
    *(overwrite, cut, remove, remove_the_log, put_a_directory, put_a_pipe),
    *(put_another_programs, drop_a_table, cut_the_log, overwrite_the_log),
]


@pytest.mark.parametrize("damage", DAMAGE)
def test_file_that_is_spoilt_while_jobs_run_and_while_no_daemon_does(
    node: FaultyNode, damage: Callable[[Path], None]
) -> None:
    with node.everybody_goes_on():
        damage(node.state)
    with node.everybody_goes_on():
        register(node.leased.admin_socket, 99)
    node.wait_fault(False)
    # Nothing is lost with the file: the next daemon has it all from what memory had.
    with node.everybody_goes_on():
        node.restart()
    assert node.tenants() == [*JOBS, 99]
    said = node.said("usage.db")
    assert said <= 4, node.log()
    node.leased.kill()
    damage(node.state)
    node.leased.start()
    node.begin(range(11, 19))
    with node.everybody_goes_on():
        assert node.fault() is None
    assert node.said("usage.db") - said <= 3, node.log()


@pytest.mark.parametrize("how", ["to write", "exclusively"])
def test_file_that_somebody_has_locked(node: FaultyNode, how: str) -> None:
    node.leased.stop()
    with locked(node.database, how):
        # What is there can be read all the same: jobs that run are known.
        with node.everybody_goes_on():
            node.leased.start()
        node.wait_fault(True)
        with node.everybody_goes_on(but=[8]):
            register(node.leased.admin_socket, 99)
            ask_end(node, 8)
        assert node.said(CANNOT) == 1
        assert "locked" in str(node.fault())
    node.wait_fault(False)
    node.restart()
    assert node.tenants() == [*JOBS[:-1], 99]


def ask_end(node: FaultyNode, job: int) -> None:
    ask(node.leased.admin_socket, {"op": "job_end", "job_id": job})


def test_everybody_goes_on_while_the_disk_is_full(small_disk_node: FaultyNode) -> None:
    node = small_disk_node
    disk: Disk = node.disk  # type: ignore[attr-defined]
    with node.everybody_goes_on():
        disk.fill()
        node.wait_fault(True)
    with node.everybody_goes_on():
        node.restart()
    disk.make_room()
    node.wait_fault(False)
    assert node.tenants() == list(JOBS)
    assert node.said(CANNOT) <= 4, node.log()


@pytest.mark.parametrize("killed", [False, True])
def test_a_daemon_starts_on_a_read_only_disk(small_disk_node: FaultyNode, killed: bool) -> None:
    node = small_disk_node
    disk: Disk = node.disk  # type: ignore[attr-defined]
    node.leased.kill() if killed else node.leased.stop()
    disk.set_writable(False)
    # What is there can be read, with the log that a daemon leaves which was killed.
    with node.everybody_goes_on():
        node.leased.start()
    with node.everybody_goes_on():
        node.wait_fault(True)
        register(node.leased.admin_socket, 99)
    disk.set_writable(True)
    node.wait_fault(False)
    with node.everybody_goes_on():
        node.restart()
    assert node.tenants() == [*JOBS, 99]
    assert node.said(CANNOT) <= 2, node.log()


def test_disk_that_is_full_and_then_gone_for_good(small_disk_node: FaultyNode) -> None:
    node = small_disk_node
    with node.everybody_goes_on():
        for path in node.state.iterdir():
            path.unlink()
        node.disk.fill()  # type: ignore[attr-defined]
    with node.everybody_goes_on():
        node.wait_fault(True)


# Of one job, and of no job that runs.
BAD_ROWS_OF_A_JOB = {
    "a gang that is no list": "UPDATE tenants SET gang = '{}' WHERE job_id = 8",
    "options of another release": "UPDATE tenants SET options = 'class:best' WHERE job_id = 8",
    "options that are bytes": "UPDATE tenants SET options = x'ff00fe' WHERE job_id = 8",
    "a device that is not here": "UPDATE tenants SET gang = '[\"GPU-x\"]' WHERE job_id = 8",
    "usage that is no number": 'UPDATE usage SET usage = \'{"lease_ns": "x"}\' WHERE job_id = 8',
    "a uid beyond all": "UPDATE tenants SET uid = 9223372036854775807 WHERE job_id = 8",
    "totals of nothing": "UPDATE tenants SET totals = '[]' WHERE job_id = 8",
}
BAD_ROWS_OF_NONE = {
    "an epoch beyond all": "UPDATE epochs SET epoch = 9223372036854775807",
    "an epoch that is a word": "UPDATE epochs SET epoch = 'soon'",
    "settings of words": "INSERT INTO settings VALUES ('*', 'quantum-min', 'banana')",
    "settings of bytes": "INSERT INTO settings VALUES (x'ff', x'fe', x'fd')",
    "a setting that nobody knows": "INSERT INTO settings VALUES ('*', 'colour', 'red')",
    "a slurmstepd of no number": "INSERT INTO stepds VALUES (99999999999, -1, -1)",
    "an ended run without usage": (
        "INSERT INTO ended VALUES "
        "(5, 1.0, 0, '[\"GPU-x\"]', '', 'on', 2.0, NULL, 'null', '', 0, '[]')"
    ),
    "an ended run of another kind": (
        "INSERT INTO ended VALUES ('x', 'y', 'z', 'a', 'b', 'c', 'd', NULL, 'e', 'f', 'g', 'h')"
    ),
}


BAD_ROWS = BAD_ROWS_OF_A_JOB | BAD_ROWS_OF_NONE


STARTS = 3
HIT = JOBS[-STARTS:]


def test_rows_that_make_no_sense_stop_nobody_at_the_start(node: FaultyNode) -> None:
    """At each start some of different jobs and some of other tables. Two rows that are set to
    something else one after the other come at different starts."""
    for start in range(STARTS):
        of_jobs = dict(zip(HIT, list(BAD_ROWS_OF_A_JOB)[start::STARTS]))
        of_none = list(BAD_ROWS_OF_NONE)[start::STARTS]
        names = [*of_jobs.values(), *of_none]
        node.leased.stop()
        with contextlib.closing(sqlite3.connect(node.database)) as db:
            for job, name in of_jobs.items():
                db.execute(BAD_ROWS_OF_A_JOB[name].replace("job_id = 8", f"job_id = {job}"))
            for name in of_none:
                db.execute(BAD_ROWS_OF_NONE[name])
            db.commit()
        with node.everybody_goes_on(but=HIT):
            node.leased.start()
        assert node.fault() is None, names
        assert set(JOBS) - set(HIT) <= set(node.tenants()), names
        for job in HIT:
            register(node.leased.admin_socket, job)
    aside = node.said("cannot be used and is set aside")
    assert aside >= 8
    with node.everybody_goes_on(but=HIT):
        node.restart()
    assert node.said("cannot be used and is set aside") == aside, "it is said once"


def test_rows_that_make_no_sense_stop_nobody_while_jobs_run(node: FaultyNode) -> None:
    with node.everybody_goes_on(but=[8]):
        with contextlib.closing(sqlite3.connect(node.database)) as db:
            for sql in BAD_ROWS.values():
                db.execute(sql)
            db.commit()
        ask_end(node, 8)
        register(node.leased.admin_socket, 8)


# -- every column, every kind of value: the store and the requests alone, without processes --

DEEP = "[" * 100_000 + "]" * 100_000
VALUES: dict[str, Any] = {
    "nothing": None,
    "a word": "word",
    "no text": "",
    "bytes": b"\xff\xfe\x00",
    "zero": 0,
    "minus one": -1,
    "the largest": 2**63 - 1,
    "a fraction": 1.5,
    "infinity": math.inf,
    "huge": 1e308,
    "a list": "[1, [2], null]",
    "an object": '{"a": {"b": 1}}',
    "an object of numbers": json.dumps(dict.fromkeys(UUIDS, 2**200)),
    "an object of objects": json.dumps({uuid: {"lease_ns": -1} for uuid in UUIDS}),
    "a number that is none": '{"lease_ns": NaN}',
    "a deep list": DEEP,
    "a long text": "x" * 1_000_000,
    "control characters": "\x00\x1b[0m\r\n\u2028",
}
COLUMNS = [
    (table, column) for table, columns in schema.TABLES.items() for column in columns.split(", ")
]


OPEN, ENDED = (1, 2, 3), (4, 5)


def filled(folder: Path) -> Node:
    """Three jobs, two that have ended, a slurmstepd, a setting, an epoch; the file is closed."""
    node = Node(folder)
    for job in (*OPEN, *ENDED):
        node.register(job)
    node.store.add_stepd(ProcessId(12, 34), 1)
    node.store.put_setting("*", "lock", "on")
    node.store.save({job: {UUIDS[0]: Usage(lease_ns=job)} for job in (*OPEN, *ENDED)}, 77)
    for job in ENDED:
        node.store.close_tenant(job, {UUIDS[0]: Usage(lease_ns=job)})
    node.store.settle([node.store.unsettled()[0].run])
    node.store.close()
    return node


@pytest.mark.parametrize(("table", "column"), COLUMNS)
def test_any_value_in_any_column(tmp_path: Path, table: str, column: str) -> None:
    filled(tmp_path)
    sound = {name: (tmp_path / name).read_bytes() for name in PARTS if (tmp_path / name).exists()}
    for name, value in VALUES.items():
        for part in PARTS:
            (tmp_path / part).unlink(missing_ok=True)
        for part, content in sound.items():
            (tmp_path / part).write_bytes(content)
        with contextlib.closing(sqlite3.connect(tmp_path / "usage.db")) as db:
            first = f"(SELECT rowid FROM {table} ORDER BY rowid LIMIT 1)"
            # The schema itself refuses some: two of one key, nothing where there must be something.
            with contextlib.suppress(sqlite3.IntegrityError):
                db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = {first}", (value,))
            db.commit()
        self_check(tmp_path, f"{table}.{column}: {name}")


def self_check(folder: Path, what: str) -> None:
    """A daemon that starts on the file: all but one of its jobs are there, and stay."""
    node = Node(folder)
    for record in node.store.open_tenants():
        node.admin.takeover.restore(record)
    assert len(node.leases.tenants) >= len(OPEN) - 1, what
    node.store.save({}, 1)
    assert node.store.fault is None, what
    assert node.register(99).job_id == 99, what
    for record in node.store.unsettled():
        assert node.store.runs(record.job_id), what
    node.store.settle([record.run for record in node.store.unsettled()])
    node.store.save(node.leases.tenants.usage(), 10**15)
    assert node.store.fault is None, what
    assert node.store.epoch() == 10**15
    before = sorted(node.leases.tenants)
    node.restart()
    assert sorted(node.leases.tenants) == before, what
    node.store.close()


def test_a_file_that_was_filled_with_bad_rows_is_read_in_time(tmp_path: Path) -> None:
    """Each is set aside once; the next start has none of them."""
    node = filled(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "usage.db")) as db:
        db.executemany(
            "INSERT INTO ended VALUES (?, ?, 0, 'x', '', 'on', 2.0, NULL, '{}', '', 0, '[]')",
            [(job, time.time()) for job in range(20_000)],
        )
        db.commit()
    node.begin()
    assert len(node.store.open_tenants()) == len(OPEN)
    node.store.flush()
    assert node.store.fault is None
    node.store.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "usage.db")) as db:
        assert db.execute("SELECT count(*) FROM ended").fetchone() == (2,)
        assert db.execute("SELECT count(*) FROM aside").fetchone() == (1000,)
