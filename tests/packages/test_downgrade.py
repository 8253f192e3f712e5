"""What an older release's package reads of the store before it is installed (older_release.sh)."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "packaging" / "older_release.sh"


def said(line: str, path: str = "/usr/bin:/bin") -> str:
    """What a line says that calls a function of the script."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"set -e; . {SCRIPT}; {line}"],
        env={"PATH": path},
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()


def schema_of(store: Path, path: str = "/usr/bin:/bin") -> str:
    return said(f"schema_of {store}", path)


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


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (
            '[daemon]\nstate_dir = "/srv/leased"\n[placer]\nstate_dir = "/srv/placer"\n',
            "/srv/leased",
        ),
        ('[placer]\nstate_dir = "/srv/placer"\n', "/var/lib/gpu-leased"),
        ("[daemon] # of the node\n  state_dir='/srv/leased' # moved\n", "/srv/leased"),
        ('[daemon]\n#state_dir = "/srv/leased"\n', "/var/lib/gpu-leased"),
    ],
    ids=["both", "the placer's alone", "in another hand", "commented"],
)
def test_the_store_is_where_the_daemon_has_it(tmp_path: Path, text: str, place: str) -> None:
    """The placer has a directory of its own under the same name, in its own table."""
    conf = tmp_path / "gpu-leased.toml"
    conf.write_text(text)
    assert said(f"state_dir {conf}") == place


def test_without_a_configuration_the_store_is_in_its_usual_place(tmp_path: Path) -> None:
    assert said(f"state_dir {tmp_path}/gpu-leased.toml") == "/var/lib/gpu-leased"
