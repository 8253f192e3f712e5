"""Whose memory keeps a tenant out of its device, and how much it is: for status."""

from __future__ import annotations

from io import StringIO
from typing import Any

from rich.console import Console

from leased import policy
from leased.cli import show
from leased.core.arbiter import Arbiter
from leased.core.events import (
    Closed,
    Frozen,
    MemoryChanged,
    Opened,
    Released,
    Requested,
    Tick,
)
from leased.core.rules import MOVE_PATIENCE_NS


def arbiter(*sizes: tuple[int, int]) -> Arbiter:
    """Tenants that swap, with so much that can move, all of it there, and so much that cannot."""
    a = Arbiter({"d0": 100}, policy.make)
    for tenant, (size, fixed) in enumerate(sizes, 1):
        a.handle(Opened(tenant, ("d0",), "on", 10**9, swaps=True), 0)
        a.handle(MemoryChanged(tenant, "d0", size, fixed, min(size, 30)), 0)
    return a


def test_tenants_that_keep_one_out_are_listed_largest_first() -> None:
    a = arbiter((60, 0), (0, 20), (0, 30), (0, 0))
    residency = a.devices["d0"].residency
    a.handle(Requested(1), 0)
    assert not a.tenants[1].lease
    assert residency.keep_out(1) == {3: 30, 2: 20}
    assert residency.keep_out(4) == {}
    a.handle(Closed(3), 1)
    assert residency.keep_out(1) == {}
    assert a.tenants[1].lease


def test_memory_of_a_frozen_tenant_is_listed_like_fixed_memory() -> None:
    a = arbiter((80, 0), (30, 0))
    a.handle(Frozen(2), 0)
    assert a.devices["d0"].residency.keep_out(1) == {2: 30}


def test_a_tenant_is_not_kept_out_by_its_own_memory() -> None:
    a = arbiter((60, 30), (0, 0))
    a.handle(Requested(1), 0)
    assert a.tenants[1].lease
    a.handle(MemoryChanged(2, "d0", 0, 20, 0), 1)
    assert a.devices["d0"].residency.keep_out(1) == {2: 20}


def test_a_turn_in_vain_shows_that_nothing_is_free_beside_the_room() -> None:
    """Then the tenant costs others no further turns: so long as it needs more than there is."""
    a = arbiter((81, 0), (0, 20))
    a.handle(Requested(1), 0)
    assert a.tenants[1].lease, "a hundredth may be free"
    a.handle(Requested(2), 0)
    a.handle(Tick(), MOVE_PATIENCE_NS)
    a.handle(Released(1, 1), MOVE_PATIENCE_NS)
    assert a.tenants[2].lease
    a.handle(Requested(1), MOVE_PATIENCE_NS)
    a.handle(Released(2, 2), MOVE_PATIENCE_NS)
    assert not a.tenants[1].lease
    assert a.devices["d0"].residency.keep_out(1) == {2: 20}
    a.handle(MemoryChanged(2, "d0", 0, 19, 0), MOVE_PATIENCE_NS)
    assert a.tenants[1].lease


def test_status_says_it_in_a_sentence() -> None:
    gib = 1 << 30
    kept: dict[str, Any] = {"needs_bytes": 12 * gib, "jobs": 3, "by": {"7": 10 * gib, "8": gib}}
    device = {"uuid": "GPU-x", "index": 2, "usable_bytes": 16 * gib}
    answer: Any = {
        "devices": [device],
        "tenants": [{"job_id": 5, "job": "5", "kept_out": {"GPU-x": kept}}],
    }
    out = StringIO()
    Console(file=out, width=200).print(*show.kept_out(answer))
    assert out.getvalue().strip() == (
        "job 5 cannot run on GPU 2: it needs 12.0 GiB of 16.0 GiB, and 10.0 GiB of job 7, "
        "1.0 GiB of job 8 and more of 1 other cannot be moved"
    )
