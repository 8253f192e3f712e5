"""The store: what survives a full disk, a damaged file, another release, and a restart."""

from __future__ import annotations

import contextlib
import errno
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from leased.processes.identity import ProcessId
from leased.store import schema
from leased.store.changes import Changes
from leased.store.codes import CORRUPT, with_code
from leased.store.records import TenantRecord
from leased.store.store import Store
from leased.store.syncer import Syncer
from leased.usage.usage import Usage
from tests.conftest import ROOT, OpenStore
from tests.emugpu.server import EmulatedGpu
from tests.slurm.leased import Leased
from tests.slurm.processes import StartError, wait_until

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
CLASS = "ALTER TABLE tenants ADD COLUMN class TEXT NOT NULL DEFAULT 'x'"  # of a later release
REGISTER = {"op": "register", "uid": 0, "nodes": 1, "shards": 1, "gpus": [0]}


def tenant(job_id: int) -> TenantRecord:
    return TenantRecord(job_id, 1000, (UUID,), "tq:5", "auto", {})


def used(ns: int) -> dict[str, Usage]:
    return {UUID: Usage(lease_ns=ns)}


def sql(path: Path, *statements: str) -> list[Any]:
    """What a person's sqlite3 does with the file, and all rows that it shows."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as db:
        return [row for statement in statements for row in db.execute(statement)]


class Disk:
    """A file system of its own, small enough to be filled."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.filler = folder / "filler"
        folder.mkdir(parents=True)
        self._mount("-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs")

    def _mount(self, *arguments: str) -> None:
        subprocess.run(["mount", *arguments, str(self.folder)], check=True, capture_output=True)

    def fill(self) -> None:
        with self.filler.open("ab", buffering=0) as file:
            for size in (65_536, 4096, 1):
                try:
                    while True:
                        file.write(b"x" * size)
                except OSError as fault:
                    if fault.errno != errno.ENOSPC:
                        raise

    def make_room(self) -> None:
        self.filler.unlink()

    def set_writable(self, writable: bool) -> None:
        self._mount("-o", f"remount,{'rw' if writable else 'ro'}")

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.folder)], check=True, capture_output=True)


@pytest.fixture
def disk(short_dir: Path) -> Iterator[Disk]:
    """A small disk, mounted where the daemon of `Leased` keeps its state."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    made = Disk(short_dir / "leased" / "state")
    yield made
    made.unmount()


def test_full_disk_stops_nothing_and_is_caught_up(disk: Disk, open_store: OpenStore) -> None:
    path = disk.folder / "usage.db"
    store = open_store(path)
    store.open_tenant(tenant(1))
    disk.fill()
    store.open_tenant(tenant(2))
    store.add_stepd(ProcessId(12, 34), 2)
    store.save({1: used(3), 2: used(4)}, 99)
    store.put_setting("*", "lock", "on")
    store.close_tenant(1, used(5))
    assert store.fault is not None
    assert "full" in store.fault
    assert "make room on its disk" in store.fault
    # All of it is there for the daemon, and nothing of it for the next one.
    assert [t.job_id for t in store.unsettled()] == [1]
    (found,) = store.find(2)
    assert found.usage == used(4)
    disk.make_room()
    store.flush()
    assert store.fault is None
    store.close()
    again = open_store(path)
    assert [t.usage for t in again.unsettled()] == [used(5)]
    assert [t.job_id for t in again.open_tenants()] == [2]
    assert again.stepds() == {12: (ProcessId(12, 34), 2)}
    assert again.settings() == {("*", "lock"): "on"}
    assert again.epoch() == 99
    again.close()


@pytest.mark.parametrize("killed", [False, True])
def test_a_full_disk_can_be_read(disk: Disk, killed: bool, open_store: OpenStore) -> None:
    path = disk.folder / "usage.db"
    code = f"""
import os, sys
from pathlib import Path
from tests.store.test_store import tenant, used
from leased.store.store import Store
store = Store(Path({str(path)!r}))
store.open_tenant(tenant(1))
store.close_tenant(1, used(5))
os._exit(0) if {killed} else store.close()
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    disk.fill()
    store = open_store(path)
    assert [t.usage for t in store.unsettled()] == [used(5)]
    store.open_tenant(tenant(2))
    assert store.fault is not None
    disk.make_room()
    store.flush()
    assert store.fault is None
    store.close()
    assert [t.job_id for t in open_store(path).open_tenants()] == [2]


def test_read_only_disk(disk: Disk, open_store: OpenStore) -> None:
    path = disk.folder / "usage.db"
    store = open_store(path)
    store.open_tenant(tenant(1))
    store.close()
    disk.set_writable(False)
    store = open_store(path)
    assert [t.job_id for t in store.open_tenants()] == [1]
    store.close_tenant(1, used(5))
    assert store.fault is not None
    disk.set_writable(True)
    store.flush()
    assert store.fault is None
    store.close()
    assert [t.usage for t in open_store(path).unsettled()] == [used(5)]


def test_daemon_on_a_full_disk(disk: Disk, short_dir: Path, emulated_gpu: EmulatedGpu) -> None:
    leased = Leased(short_dir / "leased", short_dir / "run", os.environ | emulated_gpu.env)
    admin = leased.admin_socket

    def fault() -> object:
        return ask(admin, {"op": "status"})["store_fault"]

    with leased:
        assert fault() is None
        disk.fill()
        for job in (1, 2):
            assert ask(admin, REGISTER | {"job_id": job})["tenant"] == job
        answer = ask(admin, {"op": "set", "lock": "on"})
        ask(admin, {"op": "job_end", "job_id": 1})
        assert "cannot be written" in answer["store_fault"]
        assert "leases go on" in str(fault())
        assert ask(admin, {"op": "usage", "job_id": 1})["usage"]
        # One that starts on a full disk serves too; of what memory had the registrations of jobs
        # that are open are left, which lie elsewhere.
        leased.kill()
        leased.start()
        ask(admin, REGISTER | {"job_id": 3})
        ask(admin, {"op": "set", "lock": "off"})
        assert fault() is not None
        disk.make_room()
        wait_until("the store to be written", lambda: fault() is None)
        leased.kill()
        leased.start()
        status = ask(admin, {"op": "status"})
        assert [t["job_id"] for t in status["tenants"]] == [2, 3]
        assert status["settings"] == [{"device": "all", "key": "lock", "value": "off"}]


def write_garbage(path: Path) -> None:
    path.write_bytes(b"no database at all" * 1000)


def write_foreign(path: Path) -> None:
    sql(path, "CREATE TABLE songs (title TEXT)")


def write_foreign_tenants(path: Path) -> None:
    sql(path, "CREATE TABLE tenants (flat INTEGER, name TEXT)")


def write_damaged(path: Path) -> None:
    store = Store(path)
    for job in range(200):
        store.open_tenant(tenant(job))
    store.close()
    data = bytearray(path.read_bytes())
    data[8192:12288] = b"\xa5" * 4096
    path.write_bytes(data)


@pytest.mark.parametrize(
    "write", [write_garbage, write_foreign, write_foreign_tenants, write_damaged]
)
def test_file_that_cannot_be_used_is_set_aside(
    tmp_path: Path,
    write: Callable[[Path], None],
    caplog: pytest.LogCaptureFixture,
    open_store: OpenStore,
) -> None:
    path = tmp_path / "usage.db"
    write(path)
    before = path.read_bytes()
    store = open_store(path)
    store.open_tenant(tenant(1))
    assert store.fault is None
    assert store.epoch() > 10**15, "above any epoch of the file that is lost"
    store.close()
    assert [t.job_id for t in open_store(path).open_tenants()] == [1]
    (aside,) = tmp_path.glob("usage.db.damaged-*")
    assert aside.read_bytes() == before
    assert f"what is left of it is kept as {aside}" in caplog.text


def test_daemon_starts_on_a_damaged_file(leased: Leased) -> None:
    leased.kill()
    for file in (leased.prefix / "state").glob("usage.db*"):
        file.unlink()
    write_garbage(leased.prefix / "state" / "usage.db")
    leased.start()
    ask(leased.admin_socket, REGISTER | {"job_id": 1})
    assert ask(leased.admin_socket, {"op": "status"})["store_fault"] is None
    assert "a new one is begun" in leased.log.read_text()


def test_file_that_is_damaged_meanwhile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_store: OpenStore
) -> None:
    store = open_store(tmp_path / "usage.db")
    store.open_tenant(tenant(1))
    store.put_setting("*", "lock", "on")

    def damaged(_: Changes, __: sqlite3.Connection) -> None:
        raise with_code(sqlite3.DatabaseError("database disk image is malformed"), CORRUPT)

    with monkeypatch.context() as patch:
        patch.setattr(Changes, "write", damaged)
        store.open_tenant(tenant(2))
    assert store.fault is not None
    assert list(tmp_path.glob("usage.db.damaged-*"))
    store.flush()
    assert store.fault is None
    store.close()
    again = open_store(tmp_path / "usage.db")
    assert [t.job_id for t in again.open_tenants()] == [1, 2], "memory had it all"
    assert again.settings() == {("*", "lock"): "on"}


def test_file_of_a_release_before_comes_to_the_schema_of_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_store: OpenStore
) -> None:
    path = tmp_path / "usage.db"
    before = open_store(path)
    before.open_tenant(tenant(7))
    before.save({7: used(5)}, 99)
    before.close()
    monkeypatch.setitem(schema.MIGRATIONS, schema.VERSION + 1, f"{CLASS};")
    for _ in range(2):  # once is enough
        store = open_store(path)
        assert [(t.job_id, t.usage) for t in store.open_tenants()] == [(7, used(5))]
        assert store.epoch() == 99
        store.close()
    found = sql(path, "PRAGMA user_version", "SELECT class FROM tenants")
    assert found == [(schema.VERSION + 1,), ("x",)]


def of_version(path: Path, version: int, *also: str) -> None:
    Store(path).close()
    sql(path, *also, f"PRAGMA user_version={version}")


def test_file_of_a_later_minor_release_is_used(tmp_path: Path, open_store: OpenStore) -> None:
    path = tmp_path / "usage.db"
    of_version(path, schema.VERSION + 1, "CREATE TABLE later (x)", CLASS)
    store = open_store(path)
    store.open_tenant(tenant(1))
    assert store.fault is None
    store.close()
    found = sql(path, "PRAGMA user_version", "SELECT class FROM tenants")
    assert found == [(schema.VERSION + 1,), ("x",)]


def test_file_of_a_later_major_release_is_refused_and_kept(leased: Leased) -> None:
    leased.stop()
    path = leased.prefix / "state" / "usage.db"
    of_version(path, schema.VERSION + schema.MAJOR_STEP)
    before = path.read_bytes()
    with pytest.raises(Refused, match="is of a newer gpu-leased"):
        Store(path)
    with pytest.raises(StartError, match="install that release again"):
        leased.start()
    assert path.read_bytes() == before


def test_ends_and_settings_are_synced_and_usage_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, open_store: OpenStore
) -> None:
    begun: list[Path] = []
    monkeypatch.setattr(Syncer, "begin", lambda syncer: begun.append(syncer.path))
    store = open_store(tmp_path / "usage.db")
    store.open_tenant(tenant(1))
    store.save({1: used(1)}, 5)
    assert not begun
    store.close_tenant(1, used(2))
    assert len(begun) == 1
    store.save({}, 6)
    assert len(begun) == 1
    store.put_setting("*", "lock", "on")
    store.flush()
    assert len(begun) == 2
    store.close()


def test_file_of_0_1_is_kept_aside_and_named(
    tmp_path: Path, open_store: OpenStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "usage.db"
    open_store(path).close()
    sql(path, "PRAGMA user_version = 1006")
    assert open_store(path).fault is None
    assert "of gpu-leased 0.1: its schema is 1006" in caplog.text
    assert len(list(tmp_path.glob("usage.db.damaged-*"))) == 1
