"""What must survive the daemon: tenants and their usage, in SQLite."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from leased.arbiter import Usage
from leased.identity import ProcessId

SCHEMA = """
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
"""
KEEP_WRITTEN_S = 30 * 86400


@dataclass(frozen=True)
class TenantRecord:
    """A tenant as stored. usage: by device UUID."""

    job_id: int
    uid: int
    gang: tuple[str, ...]
    options: str
    lock: str
    usage: Mapping[str, Usage]


class Store:
    """The database at `path`, made if missing. sqlite3.Error: the disk's fault, the caller logs."""

    def __init__(self, path: Path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=NORMAL")
        self.db.executescript(SCHEMA)

    def close(self) -> None:
        self.db.close()

    def open_tenant(self, record: TenantRecord) -> None:
        """A tenant begins (again: a requeued job starts anew)."""
        with self.db:
            self.db.execute("DELETE FROM usage WHERE job_id = ?", (record.job_id,))
            self.db.execute(
                "INSERT OR REPLACE INTO tenants VALUES (?, ?, ?, ?, ?, ?, NULL, NULL)",
                (
                    *(record.job_id, record.uid, json.dumps(record.gang), record.options),
                    *(record.lock, time.time()),
                ),
            )

    def add_stepd(self, process: ProcessId, job_id: int) -> None:
        """A slurmstepd has registered; where Slurm uses no cgroups its tasks are known by it."""
        self.db.execute(
            "INSERT OR REPLACE INTO stepds VALUES (?, ?, ?)", (process.pid, process.start, job_id)
        )

    def stepds(self) -> dict[int, tuple[ProcessId, int]]:
        """By pid: the slurmstepds that registered, and their jobs. They may have ended since."""
        rows = self.db.execute("SELECT pid, start, job_id FROM stepds")
        return {pid: (ProcessId(pid, start), job_id) for pid, start, job_id in rows}

    def save(self, usage: Mapping[int, Mapping[str, Usage]], epoch: int) -> None:
        """The usage so far of many tenants, in one transaction, and the highest epoch."""
        self.db.execute("BEGIN")
        try:
            for job_id, by_device in usage.items():
                self._put_usage(job_id, by_device)
            self.db.execute("INSERT OR REPLACE INTO epochs VALUES (1, ?)", (epoch,))
        except BaseException:
            self.db.execute("ROLLBACK")
            raise
        self.db.execute("COMMIT")

    def _put_usage(self, job_id: int, by_device: Mapping[str, Usage]) -> None:
        self.db.executemany(
            "INSERT OR REPLACE INTO usage VALUES (?, ?, ?)",
            [(job_id, uuid, json.dumps(asdict(usage))) for uuid, usage in by_device.items()],
        )

    def close_tenant(self, job_id: int, usage: Mapping[str, Usage]) -> None:
        """The tenant is over; its usage waits for Slurm's accounting."""
        self.db.execute("BEGIN")
        self._put_usage(job_id, usage)
        self.db.execute("UPDATE tenants SET closed = ? WHERE job_id = ?", (time.time(), job_id))
        self.db.execute("DELETE FROM stepds WHERE job_id = ?", (job_id,))
        self.db.execute("COMMIT")

    def mark_written(self, job_id: int) -> None:
        """Slurm's accounting has it; records older than a month are dropped."""
        now = time.time()
        self.db.execute("UPDATE tenants SET written = ? WHERE job_id = ?", (now, job_id))
        old = (now - KEEP_WRITTEN_S,)
        self.db.execute(
            "DELETE FROM usage WHERE job_id IN (SELECT job_id FROM tenants WHERE written < ?)", old
        )
        self.db.execute("DELETE FROM tenants WHERE written < ?", old)

    def epoch(self) -> int:
        row = self.db.execute("SELECT epoch FROM epochs").fetchone()
        return int(row[0]) if row else 0

    def open_tenants(self) -> list[TenantRecord]:
        return self._select("closed IS NULL")

    def unwritten(self) -> list[TenantRecord]:
        """Tenants that are over and not yet in Slurm's accounting, oldest first."""
        return self._select("closed IS NOT NULL AND written IS NULL ORDER BY closed")

    def find(self, job_id: int) -> TenantRecord | None:
        found = self._select("job_id = ?", job_id)
        return found[0] if found else None

    def _select(self, where: str, *values: object) -> list[TenantRecord]:
        rows = self.db.execute(
            f"SELECT job_id, uid, gang, options, lock FROM tenants WHERE {where}", values
        ).fetchall()
        return [
            TenantRecord(
                row[0], row[1], tuple(json.loads(row[2])), row[3], row[4], self._usage(row[0])
            )
            for row in rows
        ]

    def _usage(self, job_id: int) -> dict[str, Usage]:
        rows = self.db.execute("SELECT uuid, usage FROM usage WHERE job_id = ?", (job_id,))
        return {uuid: Usage(**json.loads(text)) for uuid, text in rows}
