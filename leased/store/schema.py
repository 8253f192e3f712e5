"""The schema of the store's file, and how a file of an earlier release comes to it."""

from __future__ import annotations

APPLICATION_ID = 0x6770756C  # "gpul"
MAJOR_STEP = 1000  # PRAGMA user_version is major * 1000 + minor
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
    # `tenants` and `usage` have the open ones from here on. An older release closes
    # its tenants there; they are taken over when this one reads them.
    1002: """
ALTER TABLE tenants ADD COLUMN totals TEXT; -- JSON: by UUID, bytes that the job sees
CREATE TABLE ended (
    job_id INTEGER NOT NULL,
    opened REAL NOT NULL,    -- with job_id it names one run of a job
    uid INTEGER NOT NULL,
    gang TEXT NOT NULL,
    options TEXT NOT NULL,
    lock TEXT NOT NULL,
    closed REAL NOT NULL,
    written REAL,            -- when Slurm's accounting had it, or it was given up
    usage TEXT NOT NULL,     -- JSON: by UUID, arbiter.Usage
    PRIMARY KEY (job_id, opened)
);
CREATE INDEX ended_written ON ended (written);
CREATE TABLE aside (         -- rows that made no sense
    at INTEGER NOT NULL, place TEXT NOT NULL, why TEXT NOT NULL, content TEXT NOT NULL
);
""",
    1003: """
CREATE TABLE remembered (    -- of open tenants
    job_id INTEGER PRIMARY KEY,
    policy TEXT NOT NULL,    -- its name
    state TEXT NOT NULL      -- what it alone understands
);
""",
    1004: """
CREATE TABLE IF NOT EXISTS parked ( -- open tenants that are, by park or limits.park_after
    job_id INTEGER PRIMARY KEY,
    who TEXT NOT NULL        -- wanted that
);
""",
    1005: """
CREATE TABLE IF NOT EXISTS steps ( -- of open tenants and of ended runs
    job_id INTEGER NOT NULL,
    opened REAL NOT NULL,    -- of the run
    step TEXT NOT NULL,      -- its name: a number, batch, interactive
    since REAL NOT NULL,     -- when it had clients
    until REAL NOT NULL,
    usage TEXT NOT NULL,     -- JSON: by UUID, arbiter.Usage
    PRIMARY KEY (job_id, opened, step)
);
""",
    1006: """
ALTER TABLE tenants ADD COLUMN name TEXT;     -- the job as squeue shows it
ALTER TABLE tenants ADD COLUMN start INTEGER; -- when Slurm began the run, by its clock
ALTER TABLE ended ADD COLUMN name TEXT;
ALTER TABLE ended ADD COLUMN start INTEGER;
CREATE INDEX ended_name ON ended (name);
""",
}
TABLES = {
    "tenants": "job_id, uid, gang, options, lock, opened, closed, written, totals, name, start",
    "usage": "job_id, uuid, usage",
    "stepds": "pid, start, job_id",
    "epochs": "one, epoch",
    "settings": "device, key, value",
    "ended": "job_id, opened, uid, gang, options, lock, closed, written, usage, name, start",
    "remembered": "job_id, policy, state",
    "parked": "job_id, who",
    "steps": "job_id, opened, step, since, until, usage",
    "aside": "at, place, why, content",
}
VERSION = max(MIGRATIONS)
