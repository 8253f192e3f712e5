"""An adversary that orders leases of some jobs finds nothing; and it would find what is wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leased import policy
from leased.core.leasing import Leasing
from leased.core.state import Tenant
from leased.core.tenant_changes import TenantChanges
from tests.core.judge import Broken
from tests.core.ordering import OrderedJudge, ordered_scenario
from tests.core.world import World
from tests.support.long import long

SEEDS = range(20)
FEW = range(6)
MOST = 60  # seeds in which a fault that was put in must be found


def fault(seed: int, name: str = policy.DEFAULT) -> str | None:
    try:
        World(ordered_scenario(seed), policy_name=name, judge=OrderedJudge).run()
    except Broken as broken:
        return str(broken)
    return None


@pytest.mark.parametrize("name", policy.names())
@pytest.mark.parametrize("seeds", [FEW, *long([SEEDS[len(FEW) :]])], ids=["few", "more"])
def test_no_rule_is_broken(seeds: range, name: str) -> None:
    assert {seed: found for seed in seeds if (found := fault(seed, name)) is not None} == {}


def lets_go_of_its_devices(leasing: Leasing, tenant: Tenant) -> None:
    leasing.end(tenant)


def stays_in_the_line(changes: TenantChanges, tenant: Tenant) -> None:
    if not tenant.waiting:
        changes.waiters.begin(tenant)
    elif tenant.place is None:
        changes.waiters.sort(tenant)
    else:
        changes.waiters.hurry(tenant)


FAULTS = [
    (Leasing, "finish", lets_go_of_its_devices, "does not keep its devices"),
    (TenantChanges, "_line_up", stays_in_the_line, "stands in the line without an order"),
]


@pytest.mark.parametrize(("where", "what", "wrong", "found"), FAULTS, ids=[f[1] for f in FAULTS])
def test_what_is_wrong_is_found(
    where: type,
    what: str,
    wrong: Callable[..., None],
    found: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(where, what, wrong)
    assert any(found in (fault(seed) or "") for seed in range(MOST))
