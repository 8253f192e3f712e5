"""Tenants that cannot act hold nobody up, and their memory is no room before it has left."""

from __future__ import annotations

from leased import policy
from leased.core.actions import Action, Evict, Grant, PassedOver, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import (
    Closed,
    DrainSet,
    Event,
    Frozen,
    MemoryChanged,
    Opened,
    Released,
    Requested,
    Restored,
    Thawed,
    Tick,
)
from leased.core.rules import MOVE_PATIENCE_NS
from tests.core.line import of, queue

S = 1_000_000_000


def two(swaps: bool = False) -> Arbiter:
    """Both want the device, the first has it."""
    a = Arbiter({"d0": 100}, policy.make)
    for tenant in (1, 2):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S, swaps), 0)
        a.handle(Requested(tenant), 0)
    return a


def test_a_holder_that_cannot_act_loses_its_device_to_a_waiter_at_once() -> None:
    a = two()
    actions = a.handle(Frozen(1), S)
    assert [type(action) for action in actions] == [Revoke, PassedOver, Grant]
    assert of(Grant, actions) == [2]
    # It hears of it when it can act again, and waits like anybody.
    assert a.handle(Thawed(1), 500 * S) == []
    assert of(Grant, a.handle(Requested(1), 500 * S)) == []
    assert a.handle(Released(1, 1), 500 * S) == []
    assert queue(a) == [1]
    usage = a.tenants[1].usage["d0"]
    assert (usage.overruns, a.tenants[1].debt_ns, usage.lease_ns) == (0, 0, S)


def test_another_process_of_a_job_need_not_wait_for_one_that_is_stopped() -> None:
    """It is the job's process that has lost the lease: a new one is granted in turn."""
    a = two()
    a.handle(Frozen(1), S)
    a.handle(Thawed(1), 2 * S)
    a.handle(Requested(1), 2 * S)
    assert of(Grant, a.handle(Released(2, 2), 3 * S)) == [1]
    assert a.handle(Released(1, 1), 4 * S) == []
    assert a.tenants[1].lease
    assert a.tenants[1].debt_ns == 0


def test_a_revoked_holder_that_freezes_is_not_waited_for() -> None:
    a = two()
    a.handle(Tick(), 10 * S)
    assert of(Grant, a.handle(Frozen(1), 11 * S)) == [2]
    assert a.next_deadline() is None


def test_a_holder_that_nobody_waits_for_keeps_its_device() -> None:
    a = Arbiter({"d0": 100}, policy.make)
    for tenant in (1, 2):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S), 0)
    a.handle(Requested(1), 0)
    assert a.handle(Frozen(1), S) == []
    assert a.handle(Thawed(1), 2 * S) == []
    assert a.tenants[1].lease
    a.handle(Frozen(1), 3 * S)
    assert of(Grant, a.handle(Requested(2), 9 * S)) == [2]
    # The site takes the other device out of use: it is empty at once as well.
    a.handle(Frozen(2), 10 * S)
    assert of(PassedOver, a.handle(DrainSet("d0", True), 11 * S)) == [2]


def test_a_waiter_that_cannot_act_is_passed_over_until_it_can() -> None:
    a = two()
    a.handle(Opened(3, ("d0",), "on", 10 * S), 0)
    a.handle(Frozen(2), S)
    assert a.next_deadline() is None, "nobody waits who could run"
    a.handle(Requested(3), 2 * S)
    assert of(Grant, a.handle(Released(1, 1), 3 * S)) == [3]
    assert of(Grant, a.handle(Released(3, 2), 4 * S)) == []
    assert of(Grant, a.handle(Thawed(2), 5 * S)) == [2]


def swapping(*sizes: int) -> Arbiter:
    a = Arbiter({"d0": 100}, policy.make)
    for tenant, size in enumerate(sizes, 1):
        a.handle(Opened(tenant, ("d0",), "on", S, swaps=True), 0)
        a.handle(MemoryChanged(tenant, "d0", size, 0, 0), 0)
    return a


def work(a: Arbiter, tenant: int, size: int, now: int) -> None:
    """It is granted, has all its memory there, and releases; nothing else is in the way."""
    a.handle(Requested(tenant), now)
    restore(a, tenant, size, now)
    lease = a.tenants[tenant].lease
    assert lease
    a.handle(Released(tenant, lease.epoch), now)


def restore(a: Arbiter, tenant: int, size: int, now: int) -> None:
    lease = a.tenants[tenant].lease
    assert lease
    a.handle(MemoryChanged(tenant, "d0", size, 0, size), now)
    a.handle(Restored(tenant, lease.epoch), now)


def until(a: Arbiter, end: int, event: Event | None = None) -> list[Action]:
    """All that is done by `end`, where the event happens; deadlines on the way are met."""
    actions: list[Action] = []
    while (due := a.next_deadline()) is not None and due < end:
        actions += a.handle(Tick(), due)
    return actions + a.handle(event or Tick(), end)


def test_a_tenant_that_evicts_nothing_does_not_delay_tenants_that_fit_beside_it() -> None:
    """Stopped, and nobody has said so. 60 of 100 stay: 60 more can never come back, 30 can."""
    a = swapping(60, 60, 30)
    work(a, 1, 60, 0)
    actions = a.handle(Requested(2), S)
    assert (of(Grant, actions), of(Evict, actions)) == ([2], [1])
    assert of(Grant, a.handle(Requested(3), S)) == []
    assert of(Revoke, until(a, S + MOVE_PATIENCE_NS)) == [2]
    lease = a.tenants[2].lease
    assert lease
    assert of(Grant, a.handle(Released(2, lease.epoch), 7 * S)) == [3]
    restore(a, 3, 30, 8 * S)
    assert until(a, 100 * S, Requested(2)) == []
    assert a.next_deadline() is None, "the second could not use the device: it holds nobody up"
    # At last some of it leaves: the rest can be waited for again.
    assert of(Grant, a.handle(MemoryChanged(1, "d0", 60, 0, 59), 101 * S)) == []
    assert of(Grant, until(a, 103 * S, Released(3, 3))) == [2]


def test_a_job_that_is_known_not_to_act_is_not_asked_for_its_memory() -> None:
    a = swapping(60, 60, 30)
    work(a, 1, 60, 0)
    a.handle(Frozen(1), S)
    assert a.handle(Requested(2), S) == []
    assert of(Grant, a.handle(Requested(3), S)) == [3]
    restore(a, 3, 30, S)
    assert a.devices["d0"].residency.evictable(1) == 60
    assert of(Revoke, a.handle(Thawed(1), 2 * S)) == [3], "now the second can use the device"
    actions = until(a, 3 * S, Released(3, 2))
    assert (of(Grant, actions), of(Evict, actions)) == ([2], [1])


def test_a_tenant_granted_the_memory_of_a_frozen_one_gives_the_device_back() -> None:
    a = swapping(60, 60)
    work(a, 1, 60, 0)
    assert of(Grant, a.handle(Requested(2), S)) == [2]
    assert of(Revoke, a.handle(Frozen(1), 2 * S)) == [2]
    assert of(Revoke, a.handle(Closed(1), 3 * S)) == []


def test_a_tenant_that_evicts_step_by_step_is_waited_for() -> None:
    a = swapping(60, 60)
    work(a, 1, 60, 0)
    a.handle(Requested(2), 0)
    now = 0
    for left in range(59, 39, -1):
        now += MOVE_PATIENCE_NS - 1
        assert of(Revoke, until(a, now, MemoryChanged(1, "d0", 60, 0, left))) == []
        # Word that says nothing new is no step.
        a.handle(MemoryChanged(1, "d0", 60, 0, left), now)
    assert until(a, now + 2 * MOVE_PATIENCE_NS) == [], "all that it was told to give up has left"
