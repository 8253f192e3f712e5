"""What the indexes of the queue and of the holders answer is what the rules say, written plainly:
asked of all tenants, from nothing, after every event of the adversary's."""

from __future__ import annotations

import pytest

from leased import policy
from leased.core import by_device
from leased.core.arbiter import Action, Arbiter, Event, Tenant
from leased.core.cohort import ALONE, FREE, Cohort, in_the_way
from leased.core.share import Share
from leased.core.state import FOREVER
from tests.core.adversary import Draw
from tests.core.draws import random_scenario
from tests.core.mixes import any_scenario
from tests.core.scenario import Scenario
from tests.core.silent import Silent
from tests.core.world import World
from tests.support.long import long

SEEDS = range(700, 712)
EVENTS = 500


def line(a: Arbiter) -> list[Cohort]:
    """Cohorts with somebody who waits and could run, in the order of the first of each."""
    waiting = [t for t in a.tenants.values() if t.place is not None]
    waiting.sort(key=lambda t: t.place or 0)
    return list(dict.fromkeys(a.rules.cohorts.of[t.id] for t in waiting))


def behind(cohort: Cohort, before: list[Cohort]) -> bool:
    """It competes with one of those before it."""
    if cohort.heeds == FREE:
        return False
    return any(
        other.mask & cohort.mask and ALONE in (cohort.heeds, other.heeds)
        for other in before
        if other.heeds != FREE
    )


def first_against(cohort: Cohort, queue: list[Cohort]) -> Cohort | None:
    return next((other for other in queue if in_the_way(cohort, other)), None)


def holders(a: Arbiter, cohort: Cohort) -> list[Tenant]:
    return [t for t in a.tenants.values() if t.lease and a.rules.cohorts.of[t.id] is cohort]


def last_end(a: Arbiter, cohort: Cohort) -> int | None:
    """When the last of those in its way ends that have been told and fill no gap."""
    ends = [
        t.lease.due
        for t in a.tenants.values()
        if t.lease and t.lease.contended and not t.lease.revoked and t.lease.until == FOREVER
        if t.lease.due is not None and in_the_way(a.rules.cohorts.of[t.id], cohort)
    ]
    return max(ends, default=None)


def lacks(share: Share) -> bool:
    """Some of its memory has been used and is not on the device."""
    return share.bytes > share.resident + share.untouched


def check(a: Arbiter) -> None:
    cohorts, queue = a.rules.cohorts, line(a)
    for bit in cohorts.bit.values():
        mask = cohorts.reached(bit)
        here = [cohort for cohort in queue if cohort.mask & mask]
        plain = [c for n, c in enumerate(here) if c.heeds != FREE and not behind(c, here[:n])]
        assert list(cohorts.queued.leading(mask)) == plain
        assert cohorts.queued.first(bit) is next(
            (c for c in queue if c.mask & bit and c.heeds != FREE), None
        )
    for device in a.devices.values():
        order, shares = device.residency.order, device.residency.shares
        lacking = [n for n in order.waiting if lacks(shares[n])]
        assert list(order.lacking) == lacking
        assert order.lacking_among(2) == [n for n in list(order.waiting)[:2] if n in lacking]
    for n, cohort in enumerate(queue):
        assert cohorts.queued.is_behind(cohort.place, cohort) == behind(cohort, queue[:n])
        if cohort.heeds != FREE:
            assert cohorts.holders.ends.last(cohort) == last_end(a, cohort)
    for cohort in {cohorts.of[t.id] for t in a.tenants.values() if t.lease}:
        first = first_against(cohort, queue)
        assert cohorts.queued.first_against(cohort) is first
        heard(a, cohort, first)


def heard(a: Arbiter, cohort: Cohort, first: Cohort | None) -> None:
    """Holders know whether somebody waits for them, and of the first who does."""
    awaited = first is not None or cohort.mask & a.rules.drained_mask != 0
    leases = [t.lease for t in holders(a, cohort) if t.lease and not t.lease.revoked]
    for lease in leases:
        assert lease.contended == awaited
    if leases and cohort.heeds != FREE:
        assert cohort.waiter is (first.first if first else None) or not awaited


class Checked:
    def began(self, arbiter: Arbiter) -> None:
        self.arbiter = arbiter

    def handled(self, _now: int, _event: Event, _actions: list[Action]) -> None:
        check(self.arbiter)


def play(scenario: Scenario, policy_name: str) -> None:
    checked = Checked()
    World(scenario, EVENTS, checked.began, checked.handled, policy_name, judge=Silent).run()


@pytest.mark.parametrize("policy_name", policy.names())
def test_they_do_so_where_gangs_are_wide(policy_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every gang of several devices counts as one of many."""
    monkeypatch.setattr(by_device, "WIDE", 1)
    monkeypatch.setattr(by_device, "PART", 1 << 30)
    for seed in SEEDS:
        play(any_scenario(seed), policy_name)


@pytest.mark.parametrize("policy_name", policy.names())
@pytest.mark.parametrize("draw", [random_scenario, *long([any_scenario])])
def test_the_indexes_say_what_the_rules_do(draw: Draw, policy_name: str) -> None:
    for seed in SEEDS:
        play(draw(seed), policy_name)
