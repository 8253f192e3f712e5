"""Every tenant's usage is saved once in each round, whoever comes and goes meanwhile."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from leased.node.checkpoint import SAVE_AT_ONCE, Checkpoint

TURNS = 3


def test_no_tenant_is_left_out_while_others_end() -> None:
    """One that opened earlier ends between any two turns, so all others move up in the list."""
    tenants = dict.fromkeys(range(TURNS * SAVE_AT_ONCE))
    leases: Any = SimpleNamespace(tenants=tenants)
    checkpoint = Checkpoint(leases, SimpleNamespace())  # type: ignore[arg-type]
    stay = set(tenants) - set(range(4 * TURNS))
    for first in (0, TURNS, 2 * TURNS):
        saved: list[int] = []
        for job in range(first, first + TURNS):
            saved += checkpoint.next_jobs()
            del tenants[job]
        assert stay <= set(saved)
        assert len(saved) == len(set(saved))


def test_new_tenants_are_in_the_next_round_and_an_empty_node_has_none() -> None:
    tenants: dict[int, None] = {}
    leases: Any = SimpleNamespace(tenants=tenants)
    checkpoint = Checkpoint(leases, SimpleNamespace())  # type: ignore[arg-type]
    assert checkpoint.next_jobs() == []
    tenants[7] = None
    assert checkpoint.next_jobs() == [7]
    tenants[8] = None
    assert checkpoint.next_jobs() == [7, 8]
