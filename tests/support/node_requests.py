"""The requests of a node in this process: its leases and its store, without a daemon."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from leased.admin.admin import Admin
from leased.admin.jobs import Jobs
from leased.config import options
from leased.config.config import Config
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.memory.speed import Speed
from leased.processes.identity import Peer
from leased.store.store import Store

GIB = 1 << 30
UUIDS = [f"GPU-{n:08x}-0000-0000-0000-000000000000" for n in range(2)]
ROOT_PEER = Peer(os.getpid(), 0, 0, (0,))
DEFAULTS = Config().defaults
STEP = {"nodes": 1, "shards": 1, "uid": 1000}


class Node:
    """The requests of a node, its leases and its store; begun again as after a restart."""

    def __init__(self, folder: Path, exclusion: bool = False):
        self.folder = folder
        self.config = Config(
            preload=__file__, state_dir=folder, runtime_dir=folder, exclusion=exclusion
        )
        self.begin()

    def begin(self) -> None:
        gpus = [Gpu(n, u, "GPU", 8 * GIB, 8 * GIB, None, Speed()) for n, u in enumerate(UUIDS)]
        self.leases = Leases(gpus, lambda: 0)
        self.store = Store(self.folder / "usage.db")
        jobs = Jobs(self.leases, self.store)
        self.admin = Admin(self.config, jobs, lambda: None, lambda _: None)

    def default(self, text: str) -> None:
        """Other defaults of the site from now on, as a reload takes them."""
        self.config = replace(self.config, defaults=options.parse(text).over(DEFAULTS))
        self.admin.config = self.config

    def restart(self) -> None:
        self.store.close()
        self.begin()
        for record in self.store.open_tenants():
            self.admin.takeover.restore(record)

    def register(
        self, job: int, text: str = "", gpus: Sequence[int] = (0,), **more: object
    ) -> Tenant:
        """more: further fields of the request."""
        request = STEP | {"op": "register", "job_id": job, "options": text, "gpus": list(gpus)}
        self.admin.handle(request | more, ROOT_PEER)
        return self.leases.tenants[job]

    def rewrite(self, sql: str, *values: object) -> None:
        """Change the file as another release would have left it."""
        self.store.close()
        with sqlite3.connect(self.folder / "usage.db") as db:
            db.execute(sql, values)
        db.close()
