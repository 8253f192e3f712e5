"""An adversary that speaks the protocol finds nothing; and it would find what is wrong.

`make bench NAME=adversary` lets it run for long. A seed that breaks a rule is printed with the
smallest scenario found that breaks it, which can be given to World as it is.
"""

from __future__ import annotations

from typing import Any

import pytest

from leased import policy
from leased.core import classes
from leased.core.contention import Contention
from leased.core.leasing import Leasing
from leased.core.memory import Memory
from leased.core.state import FOREVER, Device, Tenant
from leased.core.turns import Front, Turns
from tests.core.adversary import counterexample, run
from tests.core.class_mixes import classed_scenario, half_classed
from tests.core.draws import random_scenario
from tests.core.lying import lying_scenario
from tests.core.mixes import any_scenario
from tests.core.share_mixes import sharing_scenario
from tests.support.long import long

SEEDS = range(16)
FEW = range(8)  # in make quick
LYING = range(8)
MOST = 300  # seeds in which a fault that was put in must be found


@pytest.mark.parametrize("seeds", [FEW, *long([SEEDS[len(FEW) :]])], ids=["few", "more"])
def test_no_rule_is_broken(seeds: range) -> None:
    for seed in seeds:
        found = run(seed)
        assert found.fault is None, counterexample(seed)


@pytest.mark.long
@pytest.mark.parametrize("name", policy.names())
def test_no_rule_is_broken_by_any_mix(name: str) -> None:
    """Nor where jobs are parked and suspended, and the site reloads."""
    for seed in SEEDS:
        found = run(seed, name, any_scenario)
        assert found.fault is None, counterexample(seed, 100, name, any_scenario)


@pytest.mark.long
@pytest.mark.parametrize("name", policy.names())
def test_no_rule_is_broken_where_jobs_lie(name: str) -> None:
    """Not even for those that do: a lie costs nobody else a turn, and breaks no sum."""
    for seed in LYING:
        found = run(seed, name, lying_scenario)
        assert found.fault is None, counterexample(seed, 100, name, lying_scenario)


@pytest.mark.long
def test_no_rule_is_broken_where_jobs_have_shares() -> None:
    """Nor has any more than its limit; seed 34 finds where limits do not hold."""
    for seed in (*LYING, 34):
        found = run(seed, draw=sharing_scenario)
        assert found.fault is None, counterexample(seed, 100, draw=sharing_scenario)


@pytest.mark.long
@pytest.mark.parametrize("name", policy.names())
def test_no_rule_is_broken_where_jobs_have_classes(name: str) -> None:
    """Nor does an online one wait for what an offline one has."""
    for seed in LYING:
        found = run(seed, name, classed_scenario)
        assert found.fault is None, counterexample(seed, 100, name, classed_scenario)


def test_an_offline_job_makes_way_where_the_first_waiter_has_become_overdue() -> None:
    """It had been told of that waiter before, and an online one came behind it."""
    assert run(540821215, "fcfs", half_classed).fault is None


def test_a_seed_is_always_the_same_run() -> None:
    assert random_scenario(7) == random_scenario(7)
    assert run(7) == run(7)
    assert any_scenario(7) == any_scenario(7)
    assert run(7, draw=any_scenario) == run(7, draw=any_scenario)
    assert lying_scenario(7) == lying_scenario(7)
    assert run(7, draw=lying_scenario) == run(7, draw=lying_scenario)


# -- what it must find ------------------------------------------------------------------


def tell_nobody(self: Contention, mask: int, moved: int) -> None:
    """Holders of the first device do not hear of those who wait."""
    ORIGINAL["tell"](self, mask & ~1, moved)


def never_ripe(self: Turns, front: Tenant) -> int:
    """A gap goes on for as long as somebody who fills it has not gone."""
    front.late = None
    last = self.rules.now
    for lease in [holder.lease for holder in self.rules.in_the_way(front)]:
        if lease and lease.due and (lease.overrun_at is not None or not lease.revoked):
            last = max(last, lease.due)
    return last


def forget_the_room(self: Memory, device: Device) -> None:
    """What was freed on a device is no news."""
    before = self.effects.changed
    ORIGINAL["refit"](self, device)
    self.effects.changed = before
    self.affected.clear()


def fill_every_gap(_: Turns, __: Tenant, ___: list[Front]) -> int:
    """Who stands behind somebody is let in for as long as it likes."""
    return FOREVER


def believe_who_says_that_it_holds(self: Leasing, tenant: Tenant, epoch: int) -> None:
    """Whatever epoch it names, and whoever holds its devices."""
    if tenant.lease is None and not tenant.parked:
        self.waiters.end(tenant)
        self.hold(tenant, epoch)
        self.memory.work(tenant)


ORIGINAL: dict[str, Any] = {"tell": Contention.tell, "refit": Memory.refit}


@pytest.mark.long
@pytest.mark.parametrize(
    ("owner", "name", "fault", "first"),
    [
        (Contention, "tell", tell_nobody, 0),
        (Turns, "_begins", never_ripe, 55),
        (Turns, "_gap", fill_every_gap, 27),
        (Memory, "refit", forget_the_room, 12),
    ],
)
def test_a_fault_that_is_put_in_is_found(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, fault: Any, first: int
) -> None:
    """From seed `first` on, which is near the one that finds it today."""
    monkeypatch.setattr(owner, name, fault)
    seeds = range(first, first + MOST)
    broken = next((seed for seed in seeds if run(seed).fault is not None), None)
    assert broken is not None, f"{fault.__name__} was not found"
    words = counterexample(broken, tries=20)
    assert words.startswith(f"seed {broken}: at ")
    assert "Scenario(" in words


@pytest.mark.long
def test_a_fault_that_only_lies_meet_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Leasing, "adopt", believe_who_says_that_it_holds)
    assert all(run(seed, draw=any_scenario).fault is None for seed in range(3))
    assert any(run(seed, draw=lying_scenario).fault for seed in range(10))


def usual_place(usual: int) -> int:
    """An online waiter stands in the line as anybody else."""
    return usual


def never(_: Tenant, __: Tenant) -> bool:
    """An offline holder keeps its lease until its quantum is over."""
    return False


def for_ever(holder: Tenant, waiter: Tenant) -> int | None:
    """Nobody of a class makes way for one without."""
    return FOREVER if (holder.online or holder.offline) and not waiter.online else None


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "fault"), [("place", usual_place), ("at_once", never), ("quantum", for_ever)]
)
def test_a_fault_in_what_classes_decide_is_found(
    monkeypatch: pytest.MonkeyPatch, name: str, fault: Any
) -> None:
    monkeypatch.setattr(classes, name, fault)
    assert any(run(seed, draw=classed_scenario).fault for seed in range(MOST))
