"""SQLite's codes: by the texts of its exceptions they are those that newer Pythons say."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from leased.store import codes

PAGE = 4096


def a_database(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("CREATE TABLE t (a)")
    db.executemany("INSERT INTO t VALUES (?)", [("x" * 1000,)] * 50)
    db.close()
    return sqlite3.connect(path, isolation_level=None)


def no_database(path: Path) -> None:
    path.write_text("nothing that SQLite knows " * 100)
    sqlite3.connect(path).execute("SELECT * FROM t")


def damaged_page(path: Path) -> None:
    a_database(path).close()
    with path.open("r+b") as file:
        file.seek(PAGE)
        file.write(b"\xff" * PAGE)
    sqlite3.connect(path).execute("SELECT * FROM t").fetchall()


def damaged_schema(path: Path) -> None:
    db = a_database(path)
    db.execute("PRAGMA writable_schema = ON")
    db.execute("UPDATE sqlite_master SET sql = 'CREATE NOTHING'")
    db.close()
    sqlite3.connect(path).execute("SELECT * FROM t")


def read_only(path: Path) -> None:
    a_database(path).close()
    sqlite3.connect(f"file:{path}?mode=ro", uri=True).execute("INSERT INTO t VALUES (1)")


def full(path: Path) -> None:
    db = a_database(path)
    db.execute("PRAGMA max_page_count = 1")
    db.executemany("INSERT INTO t VALUES (?)", [("x" * PAGE,)] * 50)


def no_such_table(path: Path) -> None:
    a_database(path).execute("SELECT * FROM other")


@pytest.mark.parametrize(
    ("fail", "code"),
    [
        (no_database, codes.NOTADB),
        (damaged_page, codes.CORRUPT),
        (damaged_schema, codes.CORRUPT),
        (read_only, codes.READONLY),
        (full, codes.FULL),
        (no_such_table, 0),
    ],
)
def test_a_fault_has_its_code(fail: Callable[[Path], None], code: int, tmp_path: Path) -> None:
    with pytest.raises(sqlite3.Error) as caught:
        fail(tmp_path / "db")
    assert codes.by_text(caught.value) == code
    if code:
        assert codes.code_of(caught.value) == code


def test_a_code_that_was_given_counts() -> None:
    fault = codes.with_code(sqlite3.OperationalError("disk I/O error"), codes.CORRUPT | 3 << 8)
    assert codes.code_of(fault) == codes.CORRUPT
    assert codes.code_of(OSError("database or disk is full")) == 0
