"""Who is next: first come, first served, whatever else is known of those who wait."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leased import policy
from leased.core.actions import Grant
from leased.core.arbiter import Arbiter
from leased.core.events import MemoryChanged, Opened, Released, Requested
from tests.core.line import queue

S = 1_000_000_000


def granted(a: Arbiter, tenant: int, now: int) -> int:
    """The tenant releases; returns who has the device then."""
    lease = a.tenants[tenant].lease
    assert lease
    (grant,) = [x for x in a.handle(Released(tenant, lease.epoch), now) if isinstance(x, Grant)]
    return grant.tenant


@given(
    st.permutations(range(1, 7)),
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 90)), min_size=7, max_size=7),
)
def test_first_come_is_first_served(order: list[int], had: list[tuple[int, int]]) -> None:
    """However long each has used the device already, and however much it has to bring there."""
    a, now = Arbiter({"d0": 100}, policy.make), 0
    for tenant, (seconds, size) in enumerate(had):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S), now)
        a.handle(MemoryChanged(tenant, "d0", size), now)
        a.handle(Requested(tenant), now)
        now += seconds * S
        lease = a.tenants[tenant].lease
        assert lease
        a.handle(Released(tenant, lease.epoch), now)
    a.handle(Requested(0), now)
    for tenant in order:
        now += 1
        a.handle(Requested(tenant), now)
    assert queue(a) == order
    holder = 0
    for tenant in order:
        holder = granted(a, holder, now)
        assert holder == tenant


def test_asking_again_does_not_lose_the_place() -> None:
    a = Arbiter({"d0": 100}, policy.make)
    for tenant in (0, 1, 2):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S), 0)
        a.handle(Requested(tenant), tenant)
    a.handle(Requested(1), 5)
    assert queue(a) == [1, 2]
    assert granted(a, 0, 6) == 1
