"""Who may write usage.db may make the daemon believe in any job: nobody but root may."""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from leased.api.client import ask
from leased.base.errors import Refused
from leased.store.store import Store
from tests.slurm.leased import Leased
from tests.slurm.processes import StartError
from tests.store.test_store import tenant
from tests.support.tenant import register

NOBODY = 65534
PARTS = ("usage.db", "usage.db-wal", "usage.db-shm")


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """What a shell has; systemd's unit has a stricter one."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> dict[str, int]:
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}


def test_daemon_started_by_hand_keeps_its_state_to_itself(leased: Leased) -> None:
    register(leased.admin_socket, 7)
    folder = leased.prefix / "state"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    found = modes(folder)
    assert {found[name] for name in PARTS} == {0o600}


def test_a_file_that_others_may_open_is_closed_to_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "usage.db"
    first = Store(path)
    first.open_tenant(tenant(1))
    for name in PARTS:
        (tmp_path / name).chmod(0o666)
    second = Store(path)  # with the log of the one that was killed
    assert [t.job_id for t in second.open_tenants()] == [1]
    second.open_tenant(tenant(2))
    assert set(modes(tmp_path).values()) == {0o600}
    assert "usage.db-wal had mode 0666" in caplog.text
    first.close()
    second.close()


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Refused, match="can be written by others") as refused:
        Store(folder / "usage.db")
    assert f"chmod 0700 {folder}" in refused.value.sentence()
    folder.chmod(0o755)
    Store(folder / "usage.db").close()


def test_daemon_says_what_is_wrong_with_its_directory(leased: Leased) -> None:
    leased.stop()
    folder = leased.prefix / "state"
    folder.chmod(0o777)
    with pytest.raises(StartError, match=r"state can be written by others.*; run chmod go-w"):
        leased.start()
    folder.chmod(0o700)
    leased.start()
    assert ask(leased.admin_socket, {"op": "status"})["store_fault"] is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_trusted(tmp_path: Path) -> None:
    path = tmp_path / "usage.db"
    forged = Store(path)
    forged.open_tenant(tenant(1))
    forged.close()
    os.chown(path, NOBODY, NOBODY)
    store = Store(path)
    assert store.open_tenants() == []
    store.open_tenant(tenant(2))
    assert store.fault is None
    assert path.stat().st_uid == 0
    store.close()
    (aside,) = tmp_path.glob("usage.db.damaged-*")
    with sqlite3.connect(aside) as db:
        assert db.execute("SELECT job_id FROM tenants").fetchall() == [(1,)]
    db.close()
    os.chown(tmp_path, NOBODY, -1)
    with pytest.raises(Refused, match="uid 65534"):
        Store(path)
    os.chown(tmp_path, 0, -1)
