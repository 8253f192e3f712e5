"""The schema of the store's file, and how a file of an earlier release comes to it."""

from __future__ import annotations

APPLICATION_ID = 0x6770756C  # "gpul"
MAJOR_STEP = 1000  # PRAGMA user_version is major * 1000 + minor
# By the version each leads to, oldest first. Within one major: only add. Files of 0.1, which had
# versions below the first, are not taken over.
MIGRATIONS = {
    2000: """
CREATE TABLE tenants (       -- those that are open
    job_id INTEGER PRIMARY KEY,
    uid INTEGER NOT NULL,
    gang TEXT NOT NULL,      -- JSON list of UUIDs
    options TEXT NOT NULL,   -- as given, the grammar of --gpu-share
    lock TEXT NOT NULL,
    opened REAL NOT NULL,    -- seconds since the epoch; with job_id it names one run of a job
    totals TEXT NOT NULL,    -- JSON: by UUID, bytes that the job sees
    name TEXT NOT NULL,      -- the job as squeue shows it
    start INTEGER NOT NULL,  -- when Slurm began the run, by its clock
    nodes TEXT NOT NULL      -- JSON list; of a job on several
);
CREATE TABLE usage (         -- of open tenants
    job_id INTEGER NOT NULL,
    uuid TEXT NOT NULL,
    usage TEXT NOT NULL,     -- JSON of arbiter.Usage
    PRIMARY KEY (job_id, uuid)
);
CREATE TABLE remembered (    -- of open tenants
    job_id INTEGER PRIMARY KEY,
    policy TEXT NOT NULL,    -- its name
    state TEXT NOT NULL      -- what it alone understands
);
CREATE TABLE parked (        -- open tenants that are, by park or limits.park_after
    job_id INTEGER PRIMARY KEY,
    who TEXT NOT NULL        -- wanted that
);
CREATE TABLE steps (         -- of open tenants and of ended runs
    job_id INTEGER NOT NULL,
    opened REAL NOT NULL,    -- of the run
    step TEXT NOT NULL,      -- its name: a number, batch, interactive
    since REAL NOT NULL,     -- when it had clients
    until REAL NOT NULL,
    usage TEXT NOT NULL,     -- JSON: by UUID, arbiter.Usage
    PRIMARY KEY (job_id, opened, step)
);
CREATE TABLE ended (
    job_id INTEGER NOT NULL,
    opened REAL NOT NULL,
    uid INTEGER NOT NULL,
    gang TEXT NOT NULL,
    options TEXT NOT NULL,
    lock TEXT NOT NULL,
    closed REAL NOT NULL,
    written REAL,            -- when Slurm's accounting had it, or it was given up
    usage TEXT NOT NULL,     -- JSON: by UUID, arbiter.Usage
    name TEXT NOT NULL,
    start INTEGER NOT NULL,
    nodes TEXT NOT NULL,
    PRIMARY KEY (job_id, opened)
);
CREATE INDEX ended_written ON ended (written);
CREATE INDEX ended_name ON ended (name);
CREATE TABLE stepds (
    pid INTEGER PRIMARY KEY, -- a slurmstepd that registered
    start INTEGER NOT NULL,  -- its start, in clock ticks after boot
    job_id INTEGER NOT NULL
);
CREATE TABLE epochs (one INTEGER PRIMARY KEY CHECK (one = 1), epoch INTEGER NOT NULL);
CREATE TABLE settings (
    device TEXT NOT NULL,    -- UUID, or * for the node
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    PRIMARY KEY (device, key)
);
CREATE TABLE aside (         -- rows that made no sense
    at INTEGER NOT NULL, place TEXT NOT NULL, why TEXT NOT NULL, content TEXT NOT NULL
);
""",
}
TABLES = {
    "tenants": "job_id, uid, gang, options, lock, opened, totals, name, start, nodes",
    "usage": "job_id, uuid, usage",
    "stepds": "pid, start, job_id",
    "epochs": "one, epoch",
    "settings": "device, key, value",
    "ended": "job_id, opened, uid, gang, options, lock, closed, written, usage, name, start, nodes",
    "remembered": "job_id, policy, state",
    "parked": "job_id, who",
    "steps": "job_id, opened, step, since, until, usage",
    "aside": "at, place, why, content",
}
OLDEST, VERSION = min(MIGRATIONS), max(MIGRATIONS)
