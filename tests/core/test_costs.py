"""What an event costs does not grow with those whom it does not concern. Counted in lines that run,
which no load of the machine changes."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from leased import policy
from leased.core.arbiter import (
    Arbiter,
    Closed,
    Event,
    Frozen,
    Grant,
    LockSet,
    MemoryChanged,
    Opened,
    PolicySet,
    Released,
    Requested,
    Revoke,
    Thawed,
    Tick,
)
from leased.core.by_device import WIDE, ByDevice
from leased.core.cohort import Cohort

S = 1_000_000_000
FEW, MANY = 10, 100


def arbiter(devices: int, name: str = "elastic") -> Arbiter:
    a = Arbiter({f"d{n}": 100 for n in range(devices)}, policy.make)
    for uuid in a.devices:
        a.handle(PolicySet(uuid, name), 0)
    return a


def opens(a: Arbiter, tenant: int, *gang: str, **other: Any) -> None:
    a.handle(Opened(tenant, gang, "auto", S, **other), a.now)


def lines(a: Arbiter, *events: tuple[Event, int]) -> int:
    count = 0

    def trace(frame: FrameType, kind: str, _: Any) -> Any:
        nonlocal count
        count += kind == "line" and "/leased/" in frame.f_code.co_filename
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        for event, at in events:
            a.handle(event, at)
            a.next_deadline()
    finally:
        sys.settrace(before)
    return count


def handoff_of_one_of(devices: int) -> int:
    """Two tenants want each device, and all fits on none of them."""
    a = arbiter(devices)
    for tenant in range(2 * devices):
        opens(a, tenant, f"d{tenant // 2}")
        a.handle(MemoryChanged(tenant, f"d{tenant // 2}", 60), 0)
    granted = [action for t in range(2 * devices) for action in a.handle(Requested(t), 0)]
    assert sum(isinstance(action, Grant) for action in granted) == devices
    revokes = [action for action in a.handle(Tick(), S) if isinstance(action, Revoke)]
    assert len(revokes) == devices
    one = revokes[-1]
    return lines(a, (Released(one.tenant, one.epoch), S), (Requested(one.tenant), S))


def thaw_beside(waiters: int) -> int:
    """All of them want eight devices, and swap."""
    a = arbiter(8)
    for tenant in range(waiters):
        opens(a, tenant, *a.devices, swaps=True)
        for uuid in a.devices:
            a.handle(MemoryChanged(tenant, uuid, 60, 0, 0), 0)
        a.handle(Requested(tenant), 0)
    a.handle(Frozen(waiters - 1), 1)
    return lines(a, (Thawed(waiters - 1), 2))


def end_beside(others: int) -> int:
    """All of them request a part of the device's time, and most of them wait for it."""
    a = arbiter(1)
    for tenant in range(others):
        opens(a, tenant, "d0", request=0.3)
    return lines(a, (Closed(others - 1), 1))


def handoff_in_a_chain_of(devices: int) -> int:
    """Two tenants want each pair of neighbours. All of them are connected, and hardly any holds
    what a second one wants."""
    a = arbiter(devices)
    for tenant in range(2 * devices):
        n = tenant // 2
        gang = f"d{n}", f"d{(n + 1) % devices}"
        opens(a, tenant, *gang)
        for uuid in gang:
            a.handle(MemoryChanged(tenant, uuid, 60), 0)
    for tenant in range(2 * devices):
        a.handle(Requested(tenant), 0)
    revokes = [action for action in a.handle(Tick(), S) if isinstance(action, Revoke)]
    assert len(revokes) >= devices // 3
    one = revokes[len(revokes) // 2]
    return lines(a, (Released(one.tenant, one.epoch), S), (Requested(one.tenant), S))


def of_a_gang_yields_beside(others: int) -> int:
    """Each holds another gang beside the device that one wants alone."""
    a = arbiter(8)
    for tenant in range(others):
        a.handle(Opened(tenant, ("d0", *_some(tenant + 1)), "auto", S), 0)
        a.handle(Requested(tenant), 0)
    a.handle(Opened(others, ("d0",), "on", S), 0)
    a.handle(Requested(others), 0)
    lease = a.tenants[1].lease
    assert lease is not None
    assert lease.contended
    return lines(a, (Released(1, lease.epoch), 1))


def _some(number: int) -> list[str]:
    """Devices from d1 on, others for each number below 128."""
    return [f"d{n + 1}" for n in range(7) if number >> n & 1]


def comes_at_once_with(others: int) -> int:
    """All of them come at one time, and hold the device at once."""
    a = arbiter(1)
    for tenant in range(others + 1):
        opens(a, tenant, "d0")
        if tenant < others:
            a.handle(Requested(tenant), 0)
    return lines(a, (Requested(others), 0))


def each_that_the_lock_concerns(others: int) -> int:
    """All of them hold the device at once, and begin to compete for it. How much one costs."""
    a = arbiter(1)
    for tenant in range(others):
        opens(a, tenant, "d0")
        a.handle(Requested(tenant), 0)
    a.handle(LockSet("d0", "off"), 1)
    return lines(a, (LockSet("d0", None), 2)) // others


def handoff_of_gangs_of(devices: int, name: str) -> int:
    """Several tenants want all of the devices, and all fits on none of them."""
    a = arbiter(devices, name)
    for tenant in range(5):
        opens(a, tenant, *a.devices)
        for uuid in a.devices:
            a.handle(MemoryChanged(tenant, uuid, 60), 0)
        a.handle(Requested(tenant), 0)
    for turn in range(1, 7):
        (one,) = [x for x in a.handle(Tick(), 10 * turn * S) if isinstance(x, Revoke)]
        took = lines(a, (Released(one.tenant, one.epoch), a.now), (Requested(one.tenant), a.now))
    return took


@pytest.mark.parametrize(("name", "most"), [("fcfs", 240), ("fair", 235), ("elastic", 270)])
def test_what_another_device_of_a_gang_costs(name: str, most: int) -> None:
    """In a handoff, where each tenant has memory on all devices of its gang. In lines."""
    few, many = 20, 60
    each = (handoff_of_gangs_of(many, name) - handoff_of_gangs_of(few, name)) / (many - few)
    assert each <= most


@pytest.mark.parametrize(
    "event",
    [
        handoff_of_one_of,
        thaw_beside,
        end_beside,
        handoff_in_a_chain_of,
        of_a_gang_yields_beside,
        comes_at_once_with,
        each_that_the_lock_concerns,
    ],
)
def test_it_costs_no_more_where_there_are_more(event: Callable[[int], int]) -> None:
    assert event(MANY) <= 1.2 * event(FEW)


def test_cohorts_are_found_by_their_devices() -> None:
    r, index = random.Random(3), ByDevice()
    there: dict[int, Cohort] = {}
    for number in range(400):
        width = r.choice((1, 2, WIDE, WIDE + 1, 30))
        mask = sum(1 << n for n in r.sample(range(40), width))
        cohort = Cohort(number, (("d0",), "on", False, True), mask)
        index.add(cohort)
        index.add(cohort)
        there[number] = cohort
        if len(there) > 30:
            gone = there.pop(r.choice(list(there)))
            assert gone in index
            assert index.remove(gone)
            assert not index.remove(gone)
        for wanted in (0, 1 << r.randrange(40), r.getrandbits(40), (1 << 40) - 1):
            assert index.on(wanted) == {n: c for n, c in there.items() if c.mask & wanted}
    for cohort in there.values():
        index.remove(cohort)
    assert not any(vars(index).values()), "nothing of them is left"
