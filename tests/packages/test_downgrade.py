"""What an older release's package reads of the store before it is installed (older_release.sh)."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "packaging" / "older_release.sh"


def schema_of(store: Path, path: str = "/usr/bin:/bin") -> str:
    done = subprocess.run(
        ["/bin/sh", "-c", f". {SCRIPT}; schema_of {store}"],
        env={"PATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def test_a_schema_that_is_in_the_log_alone_is_read(tmp_path: Path) -> None:
    """A daemon that was upgraded a moment ago has it there."""
    store = tmp_path / "usage.db"
    with contextlib.closing(sqlite3.connect(store, isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA user_version=1004")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        db.execute("PRAGMA user_version=99000")
        assert schema_of(store) == "99000"


@pytest.mark.parametrize("python", [True, False])
def test_without_a_log_or_python_it_is_read_too(tmp_path: Path, python: bool) -> None:
    store = tmp_path / "usage.db"
    with contextlib.closing(sqlite3.connect(store)) as db:
        db.execute("PRAGMA user_version=2007")
    (tmp_path / "od").symlink_to("/usr/bin/od")
    assert schema_of(store, "/usr/bin:/bin" if python else str(tmp_path)) == "2007"
