"""The file of the store: opened, checked, brought to this release's schema, or set aside.

A file that is damaged or not ours holds nothing that could be used: it is
renamed (never deleted) and a new one begun, so that the daemon starts. One of a
newer release is another matter: its open tenants are jobs that run now, and
without them their processes would compute beside others without a lease. So a
newer major schema is refused, with the remedy, while somebody is there who has
just installed an older release. A newer minor opens: minors only add.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from pathlib import Path

from leased.errors import Refused

log = logging.getLogger("gpu-leased")

APPLICATION_ID = 0x6770756C  # "gpul"
MAJOR_STEP = 1000  # PRAGMA user_version is major * 1000 + minor
DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
# Somebody else's lock (an administrator's sqlite3) must not hold up the leases.
LOCKED_S = 0.05

# By the version each leads to, oldest first. The first also takes the unversioned
# files of before, which have its tables already. Within one major: only add.
MIGRATIONS = {
    1000: """
CREATE TABLE IF NOT EXISTS tenants (
    job_id INTEGER PRIMARY KEY,
    uid INTEGER NOT NULL,
    gang TEXT NOT NULL,      -- JSON list of UUIDs
    options TEXT NOT NULL,   -- as given, the grammar of --gpu-share
    lock TEXT NOT NULL,
    opened REAL NOT NULL,    -- seconds since the epoch
    closed REAL,
    written REAL             -- when Slurm's accounting had it
);
CREATE TABLE IF NOT EXISTS usage (
    job_id INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    usage TEXT NOT NULL,     -- JSON of arbiter.Usage
    PRIMARY KEY (job_id, uuid)
);
CREATE TABLE IF NOT EXISTS stepds (
    pid INTEGER PRIMARY KEY, -- a slurmstepd that registered
    start INTEGER NOT NULL,  -- its start, in clock ticks after boot
    job_id INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS epochs (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL);
""",
    1001: """
CREATE TABLE settings (
    device TEXT NOT NULL,    -- UUID, or * for the node
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (device, key)
);
""",
}
VERSION = max(MIGRATIONS)


class Foreign(sqlite3.DatabaseError):
    """The file is a sound database, and none of ours."""


def is_damage(fault: Exception) -> bool:
    """Whether the file itself is at fault, and not its disk or who may write there."""
    code = getattr(fault, "sqlite_errorcode", 0) or 0
    return isinstance(fault, Foreign) or code & 0xFF in DAMAGE


def set_aside(path: Path, why: object) -> None:
    """Rename the file and what SQLite keeps beside it. OSError: it cannot be renamed."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}")
    log.critical(
        "%s cannot be used (%s): it is kept as %s and a new one is begun; "
        "usage that Slurm's accounting did not have yet is only in there",
        *(path, why, aside),
    )
    for suffix in ("", "-wal", "-shm"):
        part = path.with_name(path.name + suffix)
        if part.exists():
            part.rename(aside.with_name(aside.name + suffix))


def connect(path: Path) -> sqlite3.Connection:
    """The database, made if missing, ready to write. sqlite3.Error, OSError: the disk's
    fault. Refused: a newer release's."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        return _connect(path)
    except sqlite3.Error as fault:
        if not is_damage(fault):
            raise
        set_aside(path, fault)
        return _connect(path)


def _connect(path: Path) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, timeout=LOCKED_S)
    try:
        version = check(db, path)
        db.execute("PRAGMA journal_mode=WAL")
        db.execute("PRAGMA synchronous=NORMAL")
        for target in sorted(MIGRATIONS):
            if version < target:
                marks = f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={target};"
                db.executescript(f"BEGIN IMMEDIATE; {MIGRATIONS[target]} {marks} COMMIT;")
    except BaseException:
        db.close()
        raise
    return db


def check(db: sqlite3.Connection, path: Path) -> int:
    """The version of a sound database of ours, 0 for an empty or unversioned one."""
    found = [row[0] for row in db.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        fault = sqlite3.DatabaseError(f"damaged: {found[0]}")
        fault.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise fault
    application = int(db.execute("PRAGMA application_id").fetchone()[0])
    version = int(db.execute("PRAGMA user_version").fetchone()[0])
    tables = {row[0] for row in db.execute("SELECT name FROM sqlite_master")}
    unversioned = application == 0 and version == 0 and (not tables or "tenants" in tables)
    if application != APPLICATION_ID and not unversioned:
        raise Foreign("another program's database")
    if version // MAJOR_STEP > VERSION // MAJOR_STEP:
        raise Refused(
            f"{path} is of a newer gpu-leased (its schema is {version}, ours {VERSION})",
            "install that release again; or, when no job shares a GPU of this node, "
            f"move the file away: mv {path} {path}.newer",
        )
    if tables:
        try:
            db.execute("SELECT job_id, gang, closed, written FROM tenants LIMIT 0")
        except sqlite3.OperationalError:
            raise Foreign("another program's database") from None
    return version


def connect_to_read(path: Path) -> sqlite3.Connection:
    """The database when nothing can be written beside it (disk full or read-only).

    sqlite3.Error: it cannot be read either.
    """
    # Immutable ignores the write-ahead log, which only a daemon that was killed leaves.
    for mode in ("mode=ro", "immutable=1"):
        db = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", uri=True, isolation_level=None)
        try:
            check(db, path)
        except sqlite3.Error as fault:
            db.close()
            if mode == "immutable=1" or is_damage(fault):
                raise
        else:
            return db
    raise AssertionError("unreachable")
