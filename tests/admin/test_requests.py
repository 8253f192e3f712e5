"""Fields of requests: none is taken and not read, and a plugin of the release before is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leased.admin.admin import Admin
from leased.admin.jobs import Jobs
from leased.base.errors import Refused
from leased.config import config
from leased.core.events import Closed
from leased.gpus import devices
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.processes.identity import Peer
from leased.store.store import Store
from tests.slurm.leased import PRELOAD

ROOT = Peer(1, 0, 0)
STEP: dict[str, Any] = {"job_id": 7, "uid": 5, "nodes": 1, "shards": 1, "gpus": [0]}
# What each request says besides the field that is at fault.
RIGHT: dict[str, dict[str, Any]] = {
    "register": STEP | {"job_id": 8},
    "join": {"job_id": 7},
    "set": {"lock": "on"},
}


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Admin]:
    """18 GPUs of 1 GiB each."""
    settings = config.from_dict({"daemon": {"preload": str(PRELOAD)}})
    made = [Gpu(n, f"GPU-{n}", "H200", 1 << 30, 1 << 30) for n in range(18)]
    leases = Leases([devices.configured(gpu, settings) for gpu in made], lambda: 0)
    store = Store(tmp_path / "usage.db")
    yield Admin(settings, Jobs(leases, store), lambda: None, lambda _: None)
    store.close()


def test_a_field_that_is_taken_is_read(admin: Admin) -> None:
    admin.handle({"op": "register", **STEP}, ROOT)
    unread = []
    for op, (_, known, _) in admin.operations.items():
        for name in known:
            # No field may be an object.
            request = {"op": op, **RIGHT.get(op, {}), name: {"no": "value"}}
            try:
                admin.handle(request, ROOT)
            except Refused:
                continue
            unread.append((op, name))
            admin.leases.tenants.pop(8, None)
            admin.leases.run(Closed(8))
    assert unread == []


def test_a_job_with_more_gpus_than_one_can_share_is_refused(admin: Admin) -> None:
    """Also where a further step would give it more."""
    with pytest.raises(Refused, match="can share at most 16 GPUs of a node, and this one has 17"):
        admin.handle({"op": "register", **STEP, "gpus": list(range(17))}, ROOT)
    admin.handle({"op": "register", **STEP, "gpus": list(range(16))}, ROOT)
    with pytest.raises(Refused, match="can share at most 16 GPUs of a node, and this one has 17"):
        admin.handle({"op": "register", **STEP, "gpus": [17]}, ROOT)
