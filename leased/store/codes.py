"""SQLite's result codes of its exceptions. Python says them from 3.11 on (`sqlite_errorcode`);
before that only SQLite's texts are there, which sqlite3_errstr has had since 3.7.15."""

from __future__ import annotations

import sqlite3

READONLY, CORRUPT, FULL, NOTADB = 8, 11, 13, 26
TEXTS = (
    ("attempt to write a readonly database", READONLY),
    ("database disk image is malformed", CORRUPT),
    ("malformed database schema", CORRUPT),
    ("database or disk is full", FULL),
    ("file is not a database", NOTADB),
)


def code_of(fault: BaseException) -> int:
    """The code without what extends it; 0: it is none of SQLite's, or another than these four."""
    code = getattr(fault, "sqlite_errorcode", None)
    return by_text(fault) if code is None else code & 0xFF


def by_text(fault: BaseException) -> int:
    """What code_of answers where Python does not say the code."""
    if not isinstance(fault, sqlite3.Error):
        return 0
    said = str(fault)
    return next((code for text, code in TEXTS if said.startswith(text)), 0)


def with_code(fault: sqlite3.DatabaseError, code: int) -> sqlite3.DatabaseError:
    """The exception with this code, as SQLite itself has raised it."""
    setattr(fault, "sqlite_errorcode", code)  # noqa: B010 # no attribute of its class before 3.11
    return fault
