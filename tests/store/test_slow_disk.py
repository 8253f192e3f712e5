"""A disk that takes long to sync holds up nobody but who waits for the sync: no lease."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import pytest

from leased.store import syncer
from tests.conftest import OpenStore
from tests.slurm.processes import wait_until
from tests.store.conftest import preloaded
from tests.store.test_store import tenant, used

# Jobs begin and end, and the site sets something.
PROGRAM = """
import ctypes, sys
from pathlib import Path
from leased.store.store import Store
from tests.store.conftest import preloaded
from tests.store.test_store import tenant, used
store = Store(Path(sys.argv[1]))
store.open_tenant(tenant(1))  # the log begins
ctypes.CDLL(None).forbid_syncs(1)
for job in range(2, 100):
    store.open_tenant(tenant(job))
    store.save({job: used(1)}, job)
    store.close_tenant(job, used(2))
    store.put_setting("*", "lock", "on")
    store.flush()
assert store.fault is None
ctypes.CDLL(None).forbid_syncs(0)
store.close()
"""


def test_the_loop_syncs_nothing(tmp_path: Path) -> None:
    preloaded("sync_watch.c", tmp_path, PROGRAM, str(tmp_path / "usage.db"))


def test_a_long_log_is_moved_into_the_file(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(syncer, "LOG_MOST", 1 << 20)
    path = tmp_path / "usage.db"
    store = open_store(path)
    before = path.stat().st_size

    def moved() -> bool:
        for job in range(1, 100):
            store.open_tenant(tenant(job))
            store.close_tenant(job, used(2))
        return path.stat().st_size > before

    wait_until("the log to be moved", moved)
    assert store.fault is None


def test_a_store_goes_on_while_the_disk_syncs(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, fsync = threading.Event(), threading.Event(), os.fsync

    def slow(descriptor: int) -> None:
        begun.set()
        may_end.wait(60)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", slow)
    store = open_store(tmp_path / "usage.db")
    store.open_tenant(tenant(1))
    store.close_tenant(1, used(1))
    assert begun.wait(60)
    store.open_tenant(tenant(2))
    store.close_tenant(2, used(2))
    other = open_store(tmp_path / "usage.db")
    assert [run.job_id for run in other.unsettled()] == [1, 2], "a crash of the daemon loses none"
    may_end.set()


def test_a_sync_that_fails_is_said_and_tried_again(
    tmp_path: Path, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    store = open_store(tmp_path / "usage.db")
    store.open_tenant(tenant(1))
    store.close_tenant(1, used(1))
    wait_until("the fault", lambda: "Input/output error" in (store.fault or ""))
    store.flush()
    assert store.fault
    monkeypatch.setattr(os, "fsync", fsync)

    def works() -> bool:
        store.flush()
        return store.fault is None

    wait_until("the disk to work again", works)
