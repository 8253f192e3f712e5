"""Reads the store's file where nothing can be written beside it."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

from leased.store.database import PARTS, check, is_damage, open_file

IN_MEMORY = Path("/dev/shm")


@contextlib.contextmanager
def connect_to_read(path: Path) -> Iterator[sqlite3.Connection]:
    """The database where its disk is full or read-only, or somebody has locked it.

    sqlite3.Error: it cannot be read either, or not with the changes in its log. Without those
    the usage would be older than what the disk has.
    """
    with contextlib.ExitStack() as stack:
        try:
            db = _check_to_read(path, "mode=ro")
        except sqlite3.Error as fault:
            if is_damage(fault):
                raise
            db = _read_elsewhere(path, fault, stack)
        stack.callback(db.close)
        yield db


def _read_elsewhere(
    path: Path, fault: sqlite3.Error, stack: contextlib.ExitStack
) -> sqlite3.Connection:
    """A copy, with the log that a daemon leaves which was killed; the file itself where no disk has
    room for a copy and it has no log. The fault where it has one."""
    for folder in (None, IN_MEMORY):
        with contextlib.suppress(OSError, sqlite3.Error):
            return _check_to_read(_copy(path, folder, stack), "mode=rw")
    if _has_log(path):
        raise fault
    return _check_to_read(path, "immutable=1")


def _copy(path: Path, folder: Path | None, stack: contextlib.ExitStack) -> Path:
    copy = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=folder))) / path.name
    for suffix in PARTS[:2]:
        with contextlib.suppress(FileNotFoundError):
            shutil.copyfile(path.with_name(path.name + suffix), Path(f"{copy}{suffix}"))
    return copy


def _has_log(path: Path) -> bool:
    """Whether changes wait in a log; also where that cannot be found out."""
    try:
        return path.with_name(path.name + "-wal").stat().st_size > 0
    except FileNotFoundError:
        return False
    except OSError:
        return True


def _check_to_read(path: Path, mode: str) -> sqlite3.Connection:
    db = open_file(f"{path.absolute().as_uri()}?{mode}", uri=True)
    try:
        check(db, path)
    except BaseException:
        db.close()
        raise
    return db
