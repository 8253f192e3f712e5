"""Tenants of a chain hold their device together."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leased import policy
from leased.core import leasing
from leased.core.arbiter import Arbiter
from leased.core.events import MemoryChanged, Opened, Released, Requested, Restored
from leased.core.leasing import Leasing
from leased.core.state import Lease, Tenant
from tests.core.adversary import counterexample, run
from tests.core.chain_mixes import chained_scenario

S, GIB = 1_000_000_000, 1 << 30
ONE, TWO, OTHER = 1, 2, 3
SEEDS = range(12)
MOST = 100  # seeds in which a fault that was put in must be found


def node(size: int = 40, **of_two: Any) -> Arbiter:
    """Two of a chain with so many GiB each, and another one of 50, on a device of 100."""
    a = Arbiter({"d": 100 * GIB}, policy.make)
    of_chain = Opened(ONE, ("d",), "on", S, swaps=True, chain="c")
    two = replace(of_chain, tenant=TWO, **of_two)
    for event in (of_chain, two, replace(of_chain, tenant=OTHER, chain="")):
        a.handle(event, 0)
        gib = 50 if event.tenant == OTHER else size
        a.handle(MemoryChanged(event.tenant, "d", gib * GIB, resident=0), 0)
    return a


def holders(a: Arbiter) -> list[int]:
    return [tenant.id for tenant in a.rules.holders("d")]


def release(a: Arbiter, tenant: int, now: int) -> None:
    lease = a.tenants[tenant].lease
    assert lease is not None
    a.handle(Released(tenant, lease.epoch), now)


def begin(a: Arbiter, tenant: int, now: int) -> Lease:
    """The tenant asks, has its devices at once, and all its memory is there."""
    a.handle(Requested(tenant), now)
    lease = a.tenants[tenant].lease
    assert lease is not None
    a.handle(Restored(tenant, lease.epoch), now)
    return lease


def test_who_joins_comes_before_others_and_has_what_is_left_of_the_quantum() -> None:
    a = node()
    one = begin(a, ONE, 0)
    a.handle(Requested(OTHER), 1)
    assert begin(a, TWO, S // 2).since == one.since
    assert holders(a) == [ONE, TWO]


def test_memory_of_one_stays_until_the_last_has_released() -> None:
    a = node()
    a.handle(Requested(ONE), 0)
    a.handle(Requested(TWO), 0)
    a.handle(MemoryChanged(ONE, "d", 40 * GIB, resident=40 * GIB), 0)
    release(a, ONE, 1)
    assert not a.devices["d"].residency.idle, "it counts as held"
    release(a, TWO, 2)
    assert a.devices["d"].residency.idle == 40 * GIB


@pytest.mark.parametrize(
    ("size", "of_two"),
    [(60, {}), (40, {"chain": "other"}), (40, {"swaps": False}), (40, {"request": 0.5}),
     (40, {"job_class": "online"})],
)  # fmt: skip
def test_who_does_not_fit_or_is_not_like_it_waits(size: int, of_two: dict[str, Any]) -> None:
    a = node(size, **of_two)
    a.handle(Requested(ONE), 0)
    a.handle(Requested(TWO), 0)
    assert holders(a) == [ONE]


def test_who_has_joined_last_goes_where_memory_grows() -> None:
    a = node()
    a.handle(Requested(ONE), 0)
    a.handle(Requested(TWO), 0)
    a.handle(MemoryChanged(ONE, "d", 70 * GIB, resident=40 * GIB), S)
    lease = a.tenants[TWO].lease
    assert lease is not None
    assert lease.revoked


@pytest.mark.long
@pytest.mark.parametrize("name", policy.names())
def test_no_rule_is_broken_where_jobs_are_chains(name: str) -> None:
    for seed in SEEDS:
        found = run(seed, name, chained_scenario)
        assert found.fault is None, counterexample(seed, 100, name, chained_scenario)


GRANT = Leasing.grant


def own_quantum(self: Leasing, tenant: Tenant, until: int, joined: Lease | None = None) -> None:
    """Who joins has all of a quantum."""
    GRANT(self, tenant, until, joined)
    if joined is not None and tenant.lease is not None:
        tenant.lease.joined, tenant.lease.since = False, self.rules.now


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "fault", "first"),
    [
        (Leasing, "grant", own_quantum, 20),
        (leasing, "fit", lambda *_: True, 0),
    ],
)
def test_a_fault_that_is_put_in_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, fault: Any, first: int
) -> None:
    monkeypatch.setattr(owner, name, fault)
    assert any(run(n, draw=chained_scenario).fault for n in range(first, first + MOST))
