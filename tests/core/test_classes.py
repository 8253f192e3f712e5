"""Online and offline tenants whose memory does not fit together."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased import policy
from leased.core.actions import Contend, Revoke
from leased.core.arbiter import Arbiter
from leased.core.classes import PATIENCE
from leased.core.events import (
    Event,
    MemoryChanged,
    Opened,
    PolicySet,
    Released,
    Requested,
    Signalled,
    SpeedMeasured,
    Tick,
)
from tests.core.test_short_turns import QUANTUM, Node, S

ON, OFF, NONE = "online", "offline", "none"


class Classes(Node):
    """Tenants of these classes; each always wants the device, unless it rests."""

    def __init__(self, *classes: str, name: str = "fcfs", swaps: bool = False) -> None:
        super().__init__(name=name)
        self.swaps = swaps
        for job_class in classes:
            self.comes(job_class)

    def comes(self, job_class: str, gang: str = "0", lock: str = "on") -> int:
        n = len(self.a.tenants) + 1
        uuids = tuple(f"d{d}" for d in gang)
        self.does(Opened(n, uuids, lock, QUANTUM, self.swaps, job_class=job_class))
        if self.swaps:
            self.does(MemoryChanged(n, uuids[0], 60, 0, 0))
        self.does(Requested(n))
        return n

    def rests(self, tenant: int) -> None:
        """It releases its lease and does not ask again."""
        lease = self.a.tenants[tenant].lease
        assert lease is not None
        self.does(Released(tenant, lease.epoch))

    def revoked(self) -> list[int]:
        return [one.tenant for _, one in self.events if isinstance(one, Revoke)]


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("name", policy.names())
def test_an_offline_holder_makes_way_at_once_and_comes_back(name: str, swaps: bool) -> None:
    node = Classes(OFF, name=name, swaps=swaps)
    node.until(10 * S)
    online = node.comes(ON)
    assert node.revoked() == [1]
    assert node.holders() == [online]
    node.until(10 * QUANTUM)
    assert node.holders() == [online], "its lease does not end for an offline one"
    node.rests(online)
    assert node.holders() == [1]


def test_an_offline_holder_makes_way_also_while_its_memory_is_on_the_way() -> None:
    node = Classes(swaps=True)
    node.a.handle(Opened(1, ("d0",), "on", QUANTUM, True, job_class=OFF), 0)
    node.a.handle(MemoryChanged(1, "d0", 60, 0, 0), 0)
    node.a.handle(Requested(1), 0)  # and it says never that it is restored
    lease = node.a.tenants[1].lease
    assert lease is not None
    assert lease.restoring
    node.does(Opened(2, ("d0",), "on", QUANTUM, True, job_class=ON))
    node.does(MemoryChanged(2, "d0", 60, 0, 0))
    node.does(Requested(2))
    assert node.revoked() == [1]
    assert node.holders() == [2]


def test_an_offline_holder_makes_way_also_if_it_was_told_of_another_waiter() -> None:
    node = Classes(OFF, NONE)
    node.until(10 * S)
    assert node.revoked() == []
    assert node.comes(ON) == 3
    assert (node.revoked(), node.holders()) == ([1], [3])


def test_online_ones_and_those_without_a_class_take_turns() -> None:
    node = Classes(ON, ON)
    node.until(3 * QUANTUM)
    assert node.turns() == [(0, 1), (60, 2), (120, 1), (180, 2)]
    node = Classes(NONE, OFF, ON)
    node.until(3 * QUANTUM - 1)
    assert node.turns()[:2] == [(0, 1), (60, 3)], "the online one is first, but cuts no quantum"
    node = Classes(ON, OFF, NONE)
    node.until(QUANTUM)
    assert node.revoked()[:1] == [1], "an offline one in the line does not hide who comes behind it"


def test_offline_ones_take_turns_with_each_other_and_with_those_without_a_class() -> None:
    node = Classes(OFF, NONE, OFF)
    node.until(3 * QUANTUM)
    assert node.turns() == [(0, 1), (60, 2), (120, 3), (180, 1)]


@pytest.mark.parametrize("job_class", [OFF, NONE])
def test_a_signal_does_not_interrupt_an_online_holder(job_class: str) -> None:
    node = Classes(ON, job_class)
    node.does(Signalled(2), 10 * S)
    node.until(20 * S)
    assert node.holders() == [1]


def test_a_short_turn_of_an_offline_one_ends_for_an_online_one() -> None:
    node = Classes(NONE, OFF)
    node.does(Signalled(2), 10 * S)
    assert node.holders() == [2]
    node.does(Opened(3, ("d0",), "on", QUANTUM, job_class=ON), 11 * S)
    node.does(Requested(3))
    assert node.holders() == [3]


def test_an_online_gang_makes_way_for_itself_on_all_its_devices() -> None:
    node = Classes(OFF)
    node.comes(OFF, "1")
    node.comes(ON, "01")
    assert node.revoked() == [1, 2]
    assert node.holders() == [3]


def test_an_online_holder_stays_when_memory_does_not_fit_any_more() -> None:
    node = Classes()
    for job_class in (OFF, ON):
        node.comes(job_class, lock="auto")
    assert node.holders() == [1, 2]
    for n in (1, 2):
        node.does(MemoryChanged(n, "d0", 60))
    assert (node.revoked(), node.holders()) == ([1], [2])


def test_an_online_holder_waits_for_twenty_handoffs_before_it_yields() -> None:
    pauses = {}
    for job_class in (ON, NONE):
        node = Classes(job_class, swaps=True)
        node.does(SpeedMeasured(1, "d0", 1 << 30, 1 << 60))  # so that handoffs take a while
        node.comes(OFF)
        told: list[Event | Contend] = [
            one for _, one in node.events if isinstance(one, Contend) and one.idle_ns is not None
        ]
        assert isinstance(told[-1], Contend)
        pauses[job_class] = told[-1].idle_ns or 0
    assert pauses[ON] == PATIENCE * pauses[NONE] > 0


GANGS = st.sampled_from(["0", "1", "01"])
TENANTS = st.lists(
    st.tuples(st.sampled_from([ON, OFF, NONE]), GANGS, st.booleans()), min_size=2, max_size=6
)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["asks", "rests", "signal", "memory", "time"]),
        st.integers(0, 5),
        st.integers(0, 90),
    ),
    min_size=20,
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(tenants=TENANTS, steps=STEPS, name=st.sampled_from(policy.names()))
def test_no_offline_one_keeps_what_an_online_one_waits_for(
    tenants: list[tuple[str, str, bool]], steps: list[tuple[str, int, int]], name: str
) -> None:
    """Whatever happens, and in whatever order; who is revoked releases later."""
    a = Arbiter({"d0": 100, "d1": 100}, policy.make)
    now, revoked = 0, dict[int, int]()

    def does(event: Event) -> None:
        for action in a.handle(event, now):
            if isinstance(action, Revoke):
                revoked[action.tenant] = action.epoch
        for waiter in (t for t in a.tenants.values() if t.online and t.place is not None):
            late = [h.id for h in a.rules.in_the_way(waiter) if h.offline and h.id not in revoked]
            assert not late, (now, event)

    for uuid in a.devices:
        does(PolicySet(uuid, name))
    for n, (job_class, gang, locks) in enumerate(tenants):
        uuids = tuple(f"d{d}" for d in gang)
        does(Opened(n, uuids, "on" if locks else "auto", QUANTUM, job_class=job_class))
    for step, number, amount in steps:
        n = number % len(tenants)
        now += amount * S // 10
        tenant = a.tenants[n]
        while (due := a.next_deadline()) is not None and due <= now:
            does(Tick())
        if step == "asks" and not tenant.waiting and tenant.lease is None:
            does(Requested(n))
        elif step == "rests" and tenant.lease is not None:
            revoked.pop(n, None)
            does(Released(n, tenant.lease.epoch))
        elif step == "signal":
            does(Signalled(n))
        elif step == "memory":
            does(MemoryChanged(n, tenant.gang[0], amount))


@pytest.mark.parametrize("name", policy.names())
def test_two_online_ones_that_never_idle_leave_a_turn_in_twenty_to_one_without_a_class(
    name: str,
) -> None:
    node = Classes(ON, ON, NONE, name=name)
    node.until(100 * QUANTUM)
    had = [tenant for _, tenant in node.turns()]
    assert 3 <= had.count(3) <= 5
    assert had.index(3) <= PATIENCE + 1
    assert abs(had.count(1) - had.count(2)) <= 5


def test_offline_ones_wait_for_online_ones_however_long_that_takes() -> None:
    node = Classes(ON, ON, OFF)
    node.until(100 * QUANTUM)
    assert 3 not in [tenant for _, tenant in node.turns()]
