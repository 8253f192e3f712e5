"""Jobs that say what is not so: the arbiter's sums stay sums, and the rules hold for the others."""

from __future__ import annotations

import random

import pytest

from leased import policy
from leased.core.actions import Action, Evict, Expect, Grant, Preload, Revoke
from leased.core.arbiter import DRAIN_NS, Arbiter
from leased.core.events import (
    Adopted,
    Event,
    Frozen,
    MemoryChanged,
    Opened,
    Released,
    Requested,
    Restored,
    Tick,
)
from leased.memory.residency import Residency, handoff_ns
from tests.core.adversary import Draw
from tests.core.client import MS
from tests.core.draws import random_scenario
from tests.core.mixes import any_scenario
from tests.core.scenario import Scenario
from tests.core.world import World

SEEDS = range(9000, 9003)
EVENTS = 400
EVERY_NS = 300 * MS
AMOUNTS = (0, 1, 7, 45, 60, 90, 100, 101, 1000, 1 << 44, (1 << 63) - 1, 1 << 63)


class Lies(World):
    """Now and then some job says of its memory, or of its lease, what nobody told it to do: it
    has more on a device than it may bring, or than it has at all; it has restored, or released,
    what it never had."""

    def __init__(self, scenario: Scenario, seed: int, policy_name: str):
        self.r = random.Random(seed)
        super().__init__(scenario, EVENTS, self.began_again, self.check, policy_name)
        self.timeline.at(EVERY_NS, self.lie)

    def began_again(self, arbiter: Arbiter) -> None:
        self.arbiter = arbiter

    def lie(self) -> None:
        tenants = sorted(self.a.tenants)
        if tenants:
            self.do(self.a_lie(self.r.choice(tenants)))
        self.timeline.after(self.r.choice((0, 1, EVERY_NS)), self.lie)

    def a_lie(self, tenant: int) -> Event:
        r, known = self.r, self.a.tenants[tenant]
        epoch = r.choice((0, 1, known.granted, known.granted + 1, self.a.epoch, 1 << 63))
        if r.random() < 0.2:
            return r.choice((Restored, Released))(tenant, epoch)
        size, resident = r.choice(AMOUNTS), r.choice(AMOUNTS)
        device = r.choice(known.gang)
        return MemoryChanged(tenant, device, size, 0, resident if known.swaps else None)

    def check(self, _now: int, _event: Event, actions: list[Action]) -> None:
        for device in self.arbiter.devices.values():
            sums_add_up(device.residency)
        for action in actions:
            if isinstance(action, (Evict, Preload, Expect)):
                assert action.bytes > 0


def sums_add_up(residency: Residency) -> None:
    """Nobody's memory counts twice, or less than nothing."""
    shares = residency.shares
    for share in shares.values():
        amounts = (share.resident, share.untouched, share.leaving, share.coming, share.stuck)
        assert min(amounts) >= 0, share
        assert share.evictable >= 0
        assert share.untouched <= max(0, share.bytes - (share.reported or 0)), share
    assert residency.resident == sum(share.resident for share in shares.values())
    assert residency.fixed == sum(share.fixed for share in shares.values())
    assert residency.stuck == sum(share.stuck for share in shares.values())
    assert residency.total == sum(share.counted for share in shares.values())
    assert residency.idle == sum(s.resident for s in shares.values() if not s.holds)
    for tenant in shares:
        assert residency.missing(tenant) >= 0
        assert residency.displaced(tenant) >= 0
        assert handoff_ns([residency.part_of(tenant)]) >= 0


@pytest.mark.parametrize("policy_name", policy.names())
@pytest.mark.parametrize("draw", [random_scenario, any_scenario])
def test_no_rule_is_broken_by_lies(draw: Draw, policy_name: str) -> None:
    for seed in SEEDS:
        Lies(draw(seed), seed, policy_name).run()


def test_memory_that_came_without_being_asked_for_makes_nobody_wait() -> None:
    """A tenant that swaps reports all of its memory on a device where another one holds all."""
    a = Arbiter({"d0": 100}, policy.make)
    for tenant in (1, 2, 3):
        a.handle(Opened(tenant, ("d0",), "on", 10**9, swaps=True), 0)
        a.handle(MemoryChanged(tenant, "d0", 90, 0, 0), 0)
    a.handle(Requested(1), 0)
    a.handle(MemoryChanged(1, "d0", 90, 0, 90), 1)
    a.handle(Restored(1, 1), 1)
    a.handle(Requested(2), 2)
    (evict,) = a.handle(MemoryChanged(3, "d0", 90, 0, 90), 3)
    assert evict == Evict(3, "d0", 80), "what the holder has stays"
    sums_add_up(a.devices["d0"].residency)
    lease = a.tenants[1].lease
    assert lease
    revoked = a.handle(Tick(), lease.due or 0)
    assert Revoke(1, 1, DRAIN_NS) in revoked
    actions = a.handle(Released(1, 1), a.now)
    assert [x.tenant for x in actions if isinstance(x, Grant)] == [2]


def test_a_holder_that_cannot_act_and_reports_more_than_it_has() -> None:
    """A new daemon finds it so: what it has beyond its own size is nobody's."""
    a = Arbiter({"d0": 100}, policy.make, first_epoch=7, grace_until=10**9)
    a.handle(Opened(1, ("d0",), "on", 10**9, swaps=True), 0)
    a.handle(MemoryChanged(1, "d0", 10, 0, 90), 0)
    a.handle(Frozen(1), 0)
    a.handle(Adopted(1, 3), 0)
    assert a.tenants[1].lease
    sums_add_up(a.devices["d0"].residency)


def test_what_a_job_has_on_a_device_is_evicted_though_a_lie_left_no_room_for_it() -> None:
    """While one cannot act that says to have all of the device, the model has no room for what the
    holder has there; it is there nevertheless, and leaves when others need the room."""
    residency = Residency(100)
    residency.set_bytes(1, 60, holds=True, reported=50)
    residency.set_bytes(2, 1 << 44, holds=False, reported=1 << 44)
    residency.freeze(2, True)
    residency.set_bytes(1, 60, holds=True, reported=50)
    residency.freeze(2, False)
    residency.set_bytes(2, 10, holds=False, reported=0)
    residency.rest(1)
    assert residency.evictable(1) == 50
    residency.set_bytes(3, 90, holds=True, reported=0)
    assert residency.take_lost()[1] == 40
    sums_add_up(residency)
