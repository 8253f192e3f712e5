"""What holds under every policy, also under one that is made up here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import pytest

from leased import policy
from leased.core.actions import Grant, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import Closed, MemoryChanged, Opened, PolicySet, Released, Requested, Tick
from leased.core.policy import Policy, Spec, View
from leased.policy import registry
from tests.core.adversary import counterexample, run
from tests.core.items import items
from tests.core.judge import BOUNDS
from tests.core.line import queue
from tests.support.long import long

S = 1_000_000_000
MADE_UP = "last-come-first-served"
TOO_LONG = "a quantum of more than 60 s is not served here"
FEW, MORE = range(4), range(4, 10)  # seeds in make quick, and the others


class LastComeFirstServed(Policy):
    """Besides, from 100 s on the order is looked at each minute."""

    name: ClassVar[str] = MADE_UP

    def admit(self, view: View, tenant: Spec) -> str | None:
        return (
            "a quantum of more than 60 s is not served here" if tenant.quantum_ns > 60 * S else None
        )

    def order(self, view: View, tenant: Spec) -> int:
        return -tenant.arrival

    def preempts(self, view: View, waiter: Spec, holder: Spec) -> bool:
        return waiter.arrival > holder.arrival

    def wake_at(self, view: View, waiter: Spec) -> int | None:
        return None if view.now < 100 * S else view.now - view.now % (60 * S) + 60 * S


@pytest.fixture(autouse=True)
def made_up() -> Iterator[None]:
    registry.register(LastComeFirstServed)
    yield
    del registry.known[MADE_UP]


every = pytest.mark.parametrize("name", [*policy.names(), MADE_UP])


def test_every_policy_says_how_long_a_waiter_may_wait() -> None:
    assert set(policy.names()) - {MADE_UP} == BOUNDS.keys()


@pytest.mark.parametrize("name", [*sorted({*policy.names()} - {policy.DEFAULT}), MADE_UP])
@pytest.mark.parametrize("seeds", [FEW, *long([MORE])], ids=["few", "more"])
def test_no_rule_is_broken(name: str, seeds: range) -> None:
    """Exclusive, never half a gang, work conserved, growing epochs, bounded state. The adversary's
    own test plays the default policy."""
    for seed in seeds:
        found = run(seed, name)
        assert found.fault is None, counterexample(seed, 100, name)


def node(name: str, devices: int = 1) -> Arbiter:
    a = Arbiter({f"d{n}": 100 for n in range(devices)}, policy.make)
    for uuid in a.devices:
        a.handle(PolicySet(uuid, name), 0)
    return a


def granted(a: Arbiter, event: object, now: int) -> list[int]:
    actions = a.handle(event, now)  # type: ignore[arg-type]
    return [action.tenant for action in actions if isinstance(action, Grant)]


def test_a_policy_of_one_class_says_who_is_next() -> None:
    a = node(MADE_UP)
    for tenant in range(4):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S), 0)
        a.handle(Requested(tenant), tenant)
    assert queue(a) == [3, 2, 1]
    assert granted(a, Released(0, 1), S) == [3]


def test_a_policy_may_refuse_a_tenant() -> None:
    a = node(MADE_UP)
    assert a.refusal(Opened(1, ("d0",), "on", 61 * S)) == TOO_LONG
    assert a.refusal(Opened(1, ("d0",), "on", 60 * S)) is None
    assert not a.tenants


def test_a_policy_may_end_a_quantum_early_but_not_below_the_handoff() -> None:
    a = node(MADE_UP)
    a.devices["d0"].residency.paging.bytes_s = 100
    for tenant in range(2):
        a.handle(Opened(tenant, ("d0",), "on", 60 * S), 0)
        a.handle(MemoryChanged(tenant, "d0", 60), 0)
    a.handle(Requested(0), 0)
    a.handle(Requested(1), 0)
    assert a.next_deadline() == 20 * a.rules.handoff_ns(a.tenants[1])


@every
def test_a_dumped_state_can_be_loaded(name: str) -> None:
    made = policy.make(name)
    a = node(name)
    used = a.rules.policies.on("d0")
    for tenant in range(3):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S), 0)
        a.handle(Requested(tenant), 0)
    for turn in range(10):
        actions = a.handle(Tick(), 11 * (turn + 1) * S)
        for action in actions:
            if isinstance(action, Revoke):
                a.handle(Released(action.tenant, action.epoch), a.now)
    for here in a.tenants.values():
        made.opened(here)
    made.load(used.dump())
    assert made.dump() == used.dump()
    for damaged in (b"\xff", b"[1]", b'{"1": 2}', b'{"x": {}}', b'{"1": {"d0": "x"}}'):
        made.load(damaged)
    for tenant in range(3):
        made.load(used.dump([tenant]))
    assert made.dump() == used.dump(), "one tenant's part is of that tenant alone"


@every
def test_a_policy_forgets_who_is_gone(name: str) -> None:
    a = node(name)
    used = a.rules.policies.on("d0")
    for tenant in range(50):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S), tenant)
        a.handle(Requested(tenant), tenant)

    for tenant in range(50):
        a.handle(Closed(tenant), 100)
    empty = policy.make(name)
    assert used.dump() == empty.dump()
    assert items(used) == items(empty)


# -- a device gets another policy ---------------------------------------------------------


def test_another_policy_orders_those_who_wait_already() -> None:
    a = node("fcfs")
    for tenant in range(4):
        a.handle(Opened(tenant, ("d0",), "on", 10 * S), 0)
        a.handle(Requested(tenant), tenant)
    assert queue(a) == [1, 2, 3]
    a.handle(PolicySet("d0", MADE_UP), S)
    assert queue(a) == [3, 2, 1]
    assert granted(a, Released(0, 1), 2 * S) == [3]
    a.handle(PolicySet("d0", "fcfs"), 3 * S)
    assert granted(a, Released(3, 2), 4 * S) == [1]
    with pytest.raises(ValueError, match="is not a policy; known are"):
        a.handle(PolicySet("d0", "none"), 5 * S)


def test_a_gang_has_its_first_devices_policy_and_mixed_places_are_not_compared() -> None:
    """Where a gang connects devices of two policies, who came first is served first."""
    a = Arbiter({"d0": 100, "d1": 100}, policy.make)
    a.handle(PolicySet("d1", MADE_UP), 0)
    gangs = {0: ("d0", "d1"), 1: ("d0",), 2: ("d1",), 3: ("d0", "d1"), 4: ("d1",), 5: ("d0",)}
    for tenant, gang in gangs.items():
        a.handle(Opened(tenant, gang, "on", 10 * S), 0)
        a.handle(Requested(tenant), tenant)
    assert a.rules.policies.of(a.tenants[3]).name == "fcfs"
    assert queue(a) == [1, 2, 3, 4, 5]
    assert granted(a, Released(0, 1), S) == [1, 2]
    assert granted(a, Released(2, 3), 2 * S) == [4], "until 3 can have both"


def test_places_are_the_policys_again_when_no_gang_connects_others_with_them() -> None:
    a = Arbiter({"d0": 100, "d1": 100}, policy.make)
    a.handle(PolicySet("d1", MADE_UP), 0)
    for tenant in range(4):
        a.handle(Opened(tenant, ("d1",), "on", 10 * S), 0)
        a.handle(Requested(tenant), tenant)
    assert queue(a) == [3, 2, 1]
    a.handle(Opened(4, ("d0", "d1"), "on", 10 * S), 5)
    assert queue(a) == [1, 2, 3], "also while it asks for nothing"
    a.handle(Closed(4), 6)
    assert queue(a) == [3, 2, 1]
    a.handle(PolicySet("d1", "fcfs"), 7)
    assert queue(a) == [1, 2, 3]
