"""Opens the store's file, checks it, and brings it to this release's schema or sets it aside.

A file that is damaged or not ours holds nothing that could be used. It is
renamed (never deleted), and a new one is begun, so that the daemon starts. A file
of a newer release is different: its open tenants are jobs that run now, and if
they were unknown, their processes would compute without a lease. So a newer major
version of the schema is refused with a remedy, which the administrator sees who
has just installed an older release. A newer minor version can be used, since
minor versions only add.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sqlite3
import stat
import time
from pathlib import Path

from leased.base import owners
from leased.base.errors import Refused
from leased.store.codes import CORRUPT, NOTADB, READONLY, code_of, with_code
from leased.store.schema import APPLICATION_ID, MAJOR_STEP, MIGRATIONS, OLDEST, TABLES, VERSION
from leased.store.syncer import LOG_MOST

log = logging.getLogger("gpu-leased")

LACKING = re.compile("no such (table|column)|has no column")  # somebody changed the schema
DAMAGE = (CORRUPT, NOTADB)
# Somebody else's lock (an administrator's sqlite3) must not hold up the leases.
LOCKED_S = 0.05

PARTS = ("", "-wal", "-shm")  # what SQLite keeps beside the file has the same content


# A page that SQLite's check could not read, with SQLite's code of the disk's fault.
PAGE_FAULT = re.compile(r"error code=(\d+)")


class Foreign(sqlite3.DatabaseError):
    """The file is a sound database of another program."""


class _Unreadable(sqlite3.OperationalError):
    """The disk does not give all of the file now. It may be sound."""


def is_damage(fault: Exception) -> bool:
    """The file itself is at fault, and not its disk or the right to write there."""
    lacking = isinstance(fault, sqlite3.OperationalError) and LACKING.search(str(fault))
    return isinstance(fault, Foreign) or bool(lacking) or code_of(fault) in DAMAGE


def is_read_only(fault: Exception) -> bool:
    """SQLite could open the file only for reading."""
    return code_of(fault) == READONLY


def set_aside(path: Path, why: object, in_memory: bool = False) -> None:
    """Rename the file and what SQLite keeps beside it. OSError: it cannot be renamed.

    in_memory: memory has all of it, and will write it into a new file.
    """
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    while os.path.lexists(aside):
        aside = aside.with_name(aside.name + "x")
    log.critical(
        "%s cannot be used (%s): what is left of it is kept as %s and a new one is begun; %s",
        *(path, why, aside),
        "the new one has all that it had"
        if in_memory
        else "usage that Slurm's accounting does not have yet is only in the old one",
    )
    for suffix in PARTS:
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(aside.with_name(aside.name + suffix))


def guard(path: Path) -> None:
    """See to it that nobody else can read, write or replace the file.

    Refused: others can write to its directory. OSError: the disk fails.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    whose = owners.others(path.parent.stat(), owners.TO_WRITE)
    if whose:
        raise Refused(
            f"{path.parent} can be written by others (it is {whose}), who could forge jobs and "
            "their usage there",
            f"chown root {path.parent} && chmod 0700 {path.parent}",
        )
    for suffix in PARTS:
        part = path.with_name(path.name + suffix)
        with contextlib.suppress(FileNotFoundError):
            found = part.stat()
            if not stat.S_ISREG(found.st_mode) or owners.others(found, 0):
                set_aside(path, f"{part} is not a regular file, or belongs to uid {found.st_uid}")
            elif owners.others(found):
                _close_to_others(part, found.st_mode)
    with contextlib.suppress(FileExistsError):
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))


def _close_to_others(part: Path, mode: int) -> None:
    log.warning("%s had mode %04o; now only its owner may open it", part, stat.S_IMODE(mode))
    with contextlib.suppress(OSError):  # a disk that is read-only
        part.chmod(0o600)


def connect(path: Path) -> sqlite3.Connection:
    """The database, made if missing, ready to write. sqlite3.Error, OSError: the disk's
    fault. Refused: a newer release's, or others may write there."""
    guard(path)
    try:
        return _connect(path)
    except sqlite3.Error as fault:
        if not is_damage(fault):
            raise
        set_aside(path, fault)
        guard(path)
        return _connect(path)


def open_file(name: str, uri: bool = False) -> sqlite3.Connection:
    db = sqlite3.connect(name, isolation_level=None, timeout=LOCKED_S, uri=uri)
    db.row_factory = sqlite3.Row
    # What is no UTF-8 makes no sense in its row, and must not hide the others.
    db.text_factory = lambda raw: raw.decode(errors="replace")
    return db


def _connect(path: Path) -> sqlite3.Connection:
    db = open_file(str(path))
    try:
        version = check(db, path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")  # no commit syncs; see syncer.py
        db.execute("PRAGMA wal_autocheckpoint=0")
        db.execute(f"PRAGMA journal_size_limit={LOG_MOST // 2}")
        for target in sorted(MIGRATIONS):
            if version < target:
                marks = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={target};"
                db.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[target]} {marks} COMMIT;")
        _check_tables(db)
    except BaseException:
        db.close()
        raise
    return db


def _check_tables(db: sqlite3.Connection) -> None:
    """Foreign: a table of ours is missing, so that nothing could be written."""
    try:
        for table, columns in TABLES.items():
            db.execute(f"SELECT {columns} FROM {table} LIMIT 0")
    except sqlite3.OperationalError as fault:
        if not LACKING.search(str(fault)):
            raise
        raise Foreign(f"its schema is not ours: {fault}") from None


def check(db: sqlite3.Connection, path: Path) -> int:
    """The version of the schema; 0: it is empty."""
    _check_pages(db, path)
    application = int(db.execute("PRAGMA application_id").fetchone()[0])
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    is_new = application == 0 and version == 0 and not tables
    if application != APPLICATION_ID and not is_new:
        raise Foreign("another program's database")
    if 0 < version < OLDEST:
        raise Foreign(f"of gpu-leased 0.1: its schema is {version}, and the oldest known {OLDEST}")
    if version // MAJOR_STEP > VERSION // MAJOR_STEP:
        raise Refused(
            f"{path} is of a newer gpu-leased (its schema is {version}, ours {VERSION})",
            "install that release again; or, when no job shares a GPU of this node, "
            f"move the file away: mv {path} {path}.newer",
        )
    if tables:
        try:
            db.execute("SELECT job_id, gang FROM tenants LIMIT 0")
        except sqlite3.OperationalError as fault:
            if not LACKING.search(str(fault)):
                raise
            raise Foreign("another program's database") from None
    return version


def _check_pages(db: sqlite3.Connection, path: Path) -> None:
    """sqlite3.Error: a page is damaged, or the disk does not give it now (`is_damage`).

    SQLite reports both in the same way, and not always with the disk's error code. So after a
    report all is read without SQLite, and then checked once more.
    """
    if _pages(db) == "ok":
        return
    try:
        for suffix in PARTS[:2]:
            _read_through(path.with_name(path.name + suffix))
    except OSError as fault:
        raise _Unreadable(str(fault)) from None
    found = _pages(db)
    if code := PAGE_FAULT.search(found):
        raise with_code(_Unreadable(found), int(code[1]))
    if found != "ok":
        raise with_code(sqlite3.DatabaseError(f"damaged: {found}"), CORRUPT)


def _pages(db: sqlite3.Connection) -> str:
    """What SQLite reports of the first page that it cannot use, or "ok"."""
    return str(db.execute("PRAGMA quick_check(1)").fetchone()[0])


def _read_through(path: Path) -> None:
    """OSError: the disk does not give all of the file."""
    with contextlib.suppress(FileNotFoundError), path.open("rb", buffering=0) as file:
        while file.read(1 << 20):
            pass
