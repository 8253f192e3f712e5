"""Who pays for a drain that takes nearly as long as it may."""

from __future__ import annotations

import pytest

from leased import policy
from leased.core.actions import Grant, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import Opened, PolicySet, Released, Requested, Tick

S = 1_000_000_000
SLOW, QUICK = 1, 2
DRAINS = {SLOW: 9 * S + S // 2, QUICK: 0}  # of 10 s that are allowed
SECONDS = 4000


def part_of_slow(name: str) -> float:
    """The part of the device's time that one job with long kernels has beside one with short ones.
    Both always want it, for a second at a time."""
    a, now = Arbiter({"d0": 100}, policy.make), 0
    a.handle(PolicySet("d0", name), 0)
    actions = []
    for tenant in DRAINS:
        a.handle(Opened(tenant, ("d0",), "on", S), 0)
        actions += a.handle(Requested(tenant), 0)
    while now < SECONDS * S:
        while actions:
            action = actions.pop(0)
            assert isinstance(action, (Grant, Revoke)) or "Contend" in repr(action), "no overrun"
            if isinstance(action, Revoke):
                now += DRAINS[action.tenant]
                actions += a.handle(Released(action.tenant, action.epoch), now)
                actions += a.handle(Requested(action.tenant), now)
        due = a.next_deadline()
        assert due is not None
        now = max(now, due)
        actions += a.handle(Tick(), now)
    return a.usage(SLOW, now)["d0"].lease_ns / now


@pytest.mark.parametrize(
    ("name", "part"), [("fcfs", 10.5 / 11.5), ("elastic", 10.5 / 13.5), ("fair", 10.5 / 21)]
)
def test_a_drain_within_its_limit_is_paid_for_where_time_is_counted(name: str, part: float) -> None:
    """First come, first served counts no time: each has its quantum, and the drain beside it. What
    a job has had too much is remembered for three turns by elastic, and all of it by fair."""
    assert part_of_slow(name) == pytest.approx(part, abs=0.02)
