"""The arbiter: its rules one by one, then under anything that can happen."""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import pytest
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from leased import policy
from leased.core.actions import Action, Contend, Evict, Forfeit, Grant, Overrun, Restore, Revoke
from leased.core.arbiter import DRAIN_NS, Arbiter
from leased.core.contention import IDLE_FLOOR_NS
from leased.core.events import (
    Adopted,
    CameBack,
    Closed,
    DrainSet,
    Event,
    Listens,
    LockSet,
    MemoryChanged,
    Opened,
    QuantumSet,
    Rejoined,
    Released,
    Requested,
    RoomChanged,
    Tick,
    Widened,
)
from leased.core.rules import HANDOFF_SHARE
from leased.core.state import FIRST_CALM_NS
from tests.core.line import free_until, queue, worth

GB = 1 << 30
S = 1_000_000_000
CAPACITY = 100 * GB


def arbiter(devices: int = 1) -> Arbiter:
    return Arbiter({f"d{n}": CAPACITY for n in range(devices)}, policy.make)


def opened(a: Arbiter, tenant: int, lock: str = "on", gang: tuple[str, ...] = ("d0",)) -> None:
    a.handle(Opened(tenant, gang, lock, 10 * S), a.now)


def of(kind: type, actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def of_grants(actions: list[Action]) -> list[Grant]:
    return [action for action in actions if isinstance(action, Grant)]


def test_alone_means_no_deadline_and_no_message() -> None:
    a = arbiter()
    opened(a, 1)
    actions = a.handle(Requested(1), 0)
    assert actions == [Grant(1, 1, False, {"d0": 0})]
    assert a.next_deadline() is None
    assert a.handle(Tick(), 1000 * S) == []


def test_quantum_ends_only_when_somebody_waits() -> None:
    a = arbiter()
    opened(a, 1)
    opened(a, 2)
    a.handle(Requested(1), 0)
    assert a.handle(Requested(2), 3 * S) == [Contend(1, 1, IDLE_FLOOR_NS)]
    assert a.next_deadline() == 10 * S
    assert a.handle(Tick(), 10 * S) == [Revoke(1, 1, DRAIN_NS)]
    assert of(Grant, a.handle(Released(1, 1), 10 * S)) == [Grant(2, 2, False, {"d0": 0})]


def test_a_quantum_that_the_site_sets_counts_for_leases_that_run() -> None:
    a = arbiter()
    opened(a, 1)
    opened(a, 2)
    a.handle(Requested(1), 0)
    a.handle(Requested(2), S)
    assert a.handle(QuantumSet("d0", 4 * S), 2 * S) == []
    assert a.next_deadline() == 4 * S
    assert a.handle(QuantumSet("d0", S), 3 * S) == [Revoke(1, 1, DRAIN_NS)]


def test_a_waiter_that_goes_away_ends_the_deadline() -> None:
    a = arbiter()
    opened(a, 1)
    opened(a, 2)
    a.handle(Requested(1), 0)
    a.handle(Requested(2), S)
    assert a.handle(Closed(2), 2 * S) == [Contend(1, 1, None)]
    assert a.next_deadline() is None


def test_auto_shares_while_it_fits_and_separates_when_not() -> None:
    a = arbiter()
    opened(a, 1, "auto")
    opened(a, 2, "auto")
    a.handle(MemoryChanged(1, "d0", 60 * GB), 0)
    a.handle(MemoryChanged(2, "d0", 30 * GB), 0)
    assert of(Grant, a.handle(Requested(1), 0)) == [Grant(1, 1, True, {"d0": 0})]
    assert of(Grant, a.handle(Requested(2), 0)) == [Grant(2, 2, True, {"d0": 0})]
    # The one that came last goes, as soon as it does not fit.
    assert a.handle(MemoryChanged(2, "d0", 50 * GB), S) == [Revoke(2, 2, DRAIN_NS)]
    a.handle(Released(2, 2), S)
    assert of(Contend, a.handle(Requested(2), S))
    # And is back beside the other when it fits again and has done so for a while.
    assert of(Grant, a.handle(MemoryChanged(1, "d0", 10 * GB), 2 * S)) == []
    assert a.devices["d0"].mode == "exclusive"
    due = a.next_deadline()
    assert due == 2 * S + FIRST_CALM_NS
    assert [g.shared for g in of_grants(a.handle(Tick(), due))] == [True]
    assert a.devices["d0"].mode == "shared"


def test_auto_shares_again_when_the_tenant_whose_memory_did_not_fit_has_closed() -> None:
    a = arbiter()
    for tenant, size in ((1, 40), (2, 40), (3, 60)):
        opened(a, tenant, "auto")
        a.handle(MemoryChanged(tenant, "d0", size * GB), 0)
    for tenant in (1, 2):
        a.handle(Requested(tenant), 0)
    assert a.devices["d0"].mode == "exclusive"
    assert [g.tenant for g in of_grants(a.handle(Closed(3), S))] == [2]
    assert a.devices["d0"].mode == "shared"


def separations(every: int, until: int, refits: bool) -> int:
    """How often two jobs were separated, one of which grows and shrinks all the time.

    refits: it shrinks while they are apart and grows as soon as they are not.
    """
    a, now, count = arbiter(), 0, 0
    for tenant in (1, 2):
        opened(a, tenant, "auto")
        a.handle(MemoryChanged(tenant, "d0", 40 * GB), 0)
        a.handle(Requested(tenant), 0)
    while now < until:
        now += every
        before = a.devices["d0"].fits
        grows = before if refits else now // every % 2 == 1
        for action in a.handle(MemoryChanged(2, "d0", (70 if grows else 40) * GB), now):
            if isinstance(action, Revoke):
                a.handle(Released(action.tenant, action.epoch), now)
                a.handle(Requested(action.tenant), now)
        count += before and not a.devices["d0"].fits
    return count


def test_auto_cannot_flap() -> None:
    assert separations(S // 100, 600 * S, refits=False) == 1, "it never fits for long enough"
    # The waits double: 1, 2, 4, ... and then 64 s.
    assert 7 <= separations(S // 10, 600 * S, refits=True) <= 7 + 600 // 64


def test_a_holder_that_stays_restores_what_another_displaced() -> None:
    a = arbiter()
    for tenant in (1, 2):
        opened(a, tenant, "auto")
        a.handle(Requested(tenant), 0)
    a.handle(MemoryChanged(1, "d0", 80 * GB), 0)
    assert of(Revoke, a.handle(MemoryChanged(2, "d0", 70 * GB), S)) == [Revoke(2, 2, DRAIN_NS)]
    # Until it had drained, the second pushed 50 GB of the first one out.
    assert a.handle(Released(2, 2), 2 * S) == [Restore(1, 1, {"d0": 50 * GB})]


def test_lock_off_never_waits_and_the_site_can_forbid_it() -> None:
    a = arbiter()
    opened(a, 1, "on")
    opened(a, 2, "off")
    a.handle(Requested(1), 0)
    assert of(Grant, a.handle(Requested(2), 0))
    assert of(Revoke, a.handle(LockSet("d0", "on"), S)) == [Revoke(2, 2, DRAIN_NS)]


def test_lock_off_does_not_stand_in_line_behind_those_who_wait() -> None:
    a = arbiter()
    for tenant, lock in ((1, "on"), (2, "on"), (3, "off")):
        opened(a, tenant, lock)
    a.handle(Requested(1), 0)
    assert not of_grants(a.handle(Requested(2), 0))
    assert of_grants(a.handle(Requested(3), 0))
    assert queue(a) == [2]


def test_a_lock_that_the_site_takes_away_counts_for_those_who_wait_already() -> None:
    a = arbiter(2)
    for tenant, gang in ((1, ("d0", "d1")), (2, ("d0", "d1")), (3, ("d1",))):
        opened(a, tenant, gang=gang)
        a.handle(Requested(tenant), 0)
    a.handle(LockSet("d0", "on"), 0)  # counts for both gangs, as the first of their devices
    (grant,) = of_grants(a.handle(LockSet("d1", "off"), 0))
    assert grant.tenant == 3
    a.handle(Released(3, grant.epoch), 0)
    a.handle(LockSet("d1", None), 0)
    assert not of_grants(a.handle(Requested(3), 0))


def test_a_handoff_is_at_most_a_twentieth_of_the_quantum() -> None:
    a = arbiter()
    a.devices["d0"].residency.paging.bytes_s = 10 * GB
    opened(a, 1)
    opened(a, 2)
    for tenant in (1, 2):
        a.handle(MemoryChanged(tenant, "d0", 90 * GB), 0)
        a.handle(Requested(tenant), 0)
        if tenant == 1:
            a.handle(Released(1, 1), S)
            a.handle(Requested(1), S)
    # 80 GB of tenant 1 must make room for tenant 2: 8 s, so the quantum is 80 s.
    contend = [t for t in a.tenants.values() if t.lease and t.lease.revoke_at]
    assert [t.lease.revoke_at for t in contend if t.lease] == [S + 8 * S * HANDOFF_SHARE]


def test_overrun_is_noticed_once_and_charged() -> None:
    a = arbiter()
    opened(a, 1)
    opened(a, 2)
    a.handle(Requested(1), 0)
    a.handle(Requested(2), 0)
    a.handle(Tick(), 10 * S)
    assert a.handle(Tick(), 10 * S + DRAIN_NS) == [Overrun(1, 1)]
    assert a.handle(Tick(), 11 * S + DRAIN_NS) == []
    a.handle(Released(1, 1), 14 * S + DRAIN_NS)
    assert a.tenants[1].usage["d0"].overruns == 1
    assert a.tenants[1].debt_ns == 4 * S


def test_a_hung_holder_is_passed_over_and_owes_what_it_took() -> None:
    a = arbiter()
    opened(a, 1)
    opened(a, 2)
    a.handle(Requested(1), 0)
    a.handle(Requested(2), 0)
    for when in (10 * S, 10 * S + DRAIN_NS):
        assert a.next_deadline() == when
        a.handle(Tick(), when)
    due = a.next_deadline()
    assert due == 10 * S + 2 * DRAIN_NS
    assert a.handle(Tick(), due) == [Forfeit(1, 1), Grant(2, 2, False, {"d0": 0})]
    # Another process of it asks, which may be what the hung one waits for.
    assert of(Contend, a.handle(Requested(1), due))
    assert queue(a) == [1]
    assert a.tenants[1].debt_ns == 0
    # It lets go at last.
    a.handle(Released(1, 1), due + 3 * S)
    assert queue(a) == [1]
    assert a.tenants[1].debt_ns == DRAIN_NS + 3 * S


def test_one_process_may_owe_a_lease_while_another_has_the_next() -> None:
    a = arbiter()
    opened(a, 1)
    opened(a, 2)
    a.handle(Requested(1), 0)
    a.handle(Requested(2), 0)
    for _ in range(3):
        a.handle(Tick(), a.next_deadline() or 0)
    a.handle(Requested(1), a.now)
    assert of_grants(a.handle(Released(2, 2), a.now + S)) == [Grant(1, 3, False, {"d0": 0})]
    # The new lease runs out as well, and both are given back in any order.
    a.handle(Requested(2), a.now)
    for _ in range(3):
        a.handle(Tick(), a.next_deadline() or 0)
    lost_at = dict(a.tenants[1].forfeited)
    assert sorted(lost_at) == [1, 3]
    a.handle(Released(1, 3), a.now + S)
    assert list(a.tenants[1].forfeited) == [1]
    a.handle(Released(1, 1), a.now + S)
    assert not a.tenants[1].forfeited
    a.handle(Released(1, 1), a.now + S)
    assert a.tenants[1].debt_ns == 2 * a.now - 3 * S - sum(since or 0 for since in lost_at.values())


def test_a_drained_device_empties_and_goes_on_when_resumed() -> None:
    a = arbiter(2)
    opened(a, 1)
    opened(a, 2, "auto", ("d0", "d1"))
    a.handle(Requested(1), 0)
    assert a.handle(DrainSet("d0", True), S) == [Contend(1, 1, IDLE_FLOOR_NS)]
    assert a.devices["d0"].mode == "draining"
    assert a.handle(Tick(), 10 * S) == [Revoke(1, 1, DRAIN_NS)]
    a.handle(Released(1, 1), 10 * S)
    assert a.devices["d0"].mode == "drained"
    assert a.handle(Requested(2), 11 * S) == []
    opened(a, 3, "on", ("d1",))
    # The gang cannot start before the site lets it: nobody else waits for that.
    assert of_grants(a.handle(Requested(3), 12 * S)) == [Grant(3, 2, False, {"d1": 0})]
    a.handle(Released(3, 2), 13 * S)
    assert [g.tenant for g in of_grants(a.handle(DrainSet("d0", False), 14 * S))] == [2]


def test_a_gang_that_grows_has_all_of_it_with_its_next_lease() -> None:
    a = arbiter(2)
    opened(a, 1)
    opened(a, 2, "on", ("d1",))
    a.handle(Requested(1), 0)
    a.handle(Requested(2), 0)
    assert a.handle(Widened(1, ("d0", "d1")), S) == [Revoke(1, 1, DRAIN_NS)]
    assert set(a.devices["d1"].holders) == {2}
    a.handle(Released(1, 1), S)
    assert of_grants(a.handle(Requested(1), S)) == []
    assert [g.prefetch for g in of_grants(a.handle(Released(2, 2), 2 * S))] == [{"d0": 0, "d1": 0}]


def test_memory_on_a_device_that_the_lease_lacks_can_leave() -> None:
    a = arbiter(2)
    opened(a, 1)
    opened(a, 2, "on", ("d1",))
    a.handle(Requested(1), 0)
    a.handle(Widened(1, ("d0", "d1")), S)
    a.handle(MemoryChanged(1, "d1", CAPACITY, 0, CAPACITY), S)
    a.handle(Released(1, 1), S)
    assert a.devices["d1"].residency.idle == CAPACITY
    a.handle(MemoryChanged(2, "d1", CAPACITY, 0, 0), S)
    assert Evict(1, "d1", CAPACITY) in a.handle(Requested(2), S)
    a.handle(MemoryChanged(1, "d1", CAPACITY, 0, 0), S)
    assert a.devices["d1"].residency.idle == 0


def test_a_wide_gang_is_not_starved_and_nothing_idles_meanwhile() -> None:
    a = arbiter(2)
    opened(a, 1, "on", ("d0",))
    opened(a, 2, "on", ("d0", "d1"))
    opened(a, 3, "on", ("d1",))
    a.handle(Requested(1), 0)
    a.handle(Requested(2), 0)
    # d1 is free until the gang can start: tenant 3 has it so long, though it came later.
    assert a.handle(Requested(3), S) == [Grant(3, 2, False, {"d1": 0}, IDLE_FLOOR_NS)]
    assert a.handle(Tick(), 10 * S) == [Revoke(1, 1, DRAIN_NS), Revoke(3, 2, DRAIN_NS)]
    assert of_grants(a.handle(Released(1, 1), 10 * S)) == []
    # d0 is free again, and tenant 1 wants it: but the gang is due.
    assert of_grants(a.handle(Requested(1), 10 * S)) == []
    assert [g.tenant for g in of_grants(a.handle(Released(3, 2), 10 * S))] == [2]


def test_while_one_hangs_others_have_what_a_gang_behind_it_waits_for() -> None:
    a = arbiter(2)
    for tenant, gang in ((1, ("d0",)), (2, ("d0", "d1")), (3, ("d1",))):
        opened(a, tenant, gang=gang)
        a.handle(Requested(tenant), 0)
    a.handle(Tick(), 10 * S)
    a.handle(Released(3, 2), 10 * S)  # the gang is due, as soon as the first one has drained
    assert not of_grants(a.handle(Requested(3), 10 * S))
    (grant,) = of_grants(a.handle(Tick(), 10 * S + DRAIN_NS))
    assert grant.tenant == 3


def test_adopted_after_a_restart_keeps_the_device_and_epochs_grow() -> None:
    a = Arbiter({"d0": CAPACITY}, policy.make, first_epoch=100, grace_until=S)
    for tenant in (1, 2):
        opened(a, tenant)
    assert of_grants(a.handle(Requested(2), 0)) == []
    a.handle(Adopted(1, 77), S // 2)
    assert of_grants(a.handle(Tick(), S)) == []
    assert a.tenants[1].lease is not None
    grants = of_grants(a.handle(Released(1, 77), 2 * S))
    assert [(g.tenant, g.epoch) for g in grants] == [(2, 100)]


def test_a_lease_of_before_counts_only_where_nobody_has_the_device() -> None:
    a = Arbiter({"d0": CAPACITY}, policy.make, first_epoch=100, grace_until=S)
    for tenant in (1, 2, 3):
        opened(a, tenant)
    a.handle(Adopted(1, 200), 0)
    assert a.tenants[1].lease is None, "never granted"
    a.handle(Adopted(1, 50), 0)
    # Both had it, the later one by right.
    assert a.handle(Adopted(2, 60), 0) == [Revoke(1, 50, DRAIN_NS)]
    a.handle(Released(1, 50), 0)
    a.handle(Tick(), S)
    a.handle(Adopted(3, 70), S)
    assert a.tenants[3].lease is None, "too late, it is another's"
    a.handle(Closed(2), S)
    a.handle(Adopted(3, 70), S)
    assert a.tenants[3].lease is not None, "nobody has it: it goes on"


def test_the_grace_ends_when_all_have_said_what_they_hold() -> None:
    a = Arbiter({"d0": CAPACITY}, policy.make, first_epoch=100, grace_until=S)
    opened(a, 1)
    assert a.handle(Requested(1), 0) == []
    assert of_grants(a.handle(Rejoined(), S // 10))


def test_the_grace_goes_on_while_processes_come_back() -> None:
    a = Arbiter({"d0": CAPACITY}, policy.make, first_epoch=100, grace_until=S)
    for tenant in (1, 2):
        opened(a, tenant)
    a.handle(Requested(2), 0)
    a.handle(CameBack(), S * 9 // 10)
    assert not of_grants(a.handle(Tick(), S)), "half a second is left for the next one"
    a.handle(Adopted(1, 77), S * 14 // 10)
    assert not of_grants(a.handle(Tick(), 2 * S)), "the holder came late and has its lease"
    assert of_grants(a.handle(Released(1, 77), 2 * S))


def test_the_grace_has_an_end_however_many_come_back() -> None:
    a = Arbiter({"d0": CAPACITY}, policy.make, first_epoch=100, grace_until=S)
    opened(a, 1)
    a.handle(Requested(1), 0)
    now = 0
    while not of_grants(a.handle(CameBack(), now) + a.handle(Tick(), now)):
        now += S // 10
        assert now <= 10 * S
    assert now == 5 * S
    a.handle(CameBack(), now)
    assert a.rules.grace_until == 0, "it does not begin again"


def test_the_grace_counts_from_when_processes_can_be_heard() -> None:
    a = Arbiter({"d0": CAPACITY}, policy.make, first_epoch=100, grace_until=1 << 62)
    opened(a, 1)
    assert a.handle(Listens(S), 20 * S) == []
    a.handle(Requested(1), 20 * S)
    assert not of_grants(a.handle(Tick(), 21 * S - 1))
    assert of_grants(a.handle(Tick(), 21 * S))


def test_the_grace_ends_when_what_has_come_was_heard_and_not_before() -> None:
    """A daemon that had no processor for a while hears one process after the other."""
    a = Arbiter({"d0": CAPACITY}, policy.make, first_epoch=100, grace_until=S)
    for tenant in (1, 2):
        opened(a, tenant)
    assert a.handle(Requested(2), 3 * S) == []
    a.handle(Adopted(1, 77), 3 * S)
    assert not of_grants(a.handle(Tick(), 3 * S))
    assert of_grants(a.handle(Released(1, 77), 3 * S))


def test_late_release_of_an_old_epoch_changes_nothing() -> None:
    a = arbiter()
    opened(a, 1)
    a.handle(Requested(1), 0)
    a.handle(Released(1, 1), S)
    a.handle(Requested(1), S)
    assert a.handle(Released(1, 1), S) == []
    assert a.tenants[1].lease is not None


GANGS = [("d0",), ("d1",), ("d2",), ("d0", "d1"), ("d1", "d2"), ("d0", "d1", "d2")]
QUANTUM = 10 * S
KINDS = [
    *("open", "request", "release", "memory", "close", "tick", "late", "lock", "drain"),
    *("request", "request", "release", "yield", "hang", "restart", "tick"),
]
steps = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.integers(0, 7), st.integers(0, 120), st.integers(-2 * S, 15 * S)
    ),
    min_size=40,  # without it hypothesis makes short ones, in which little happens
    max_size=120,
)


@dataclass
class World:
    """The arbiter among tenants that do anything at any time; what each one really holds."""

    a: Arbiter = field(default_factory=lambda: arbiter(3))
    now: int = 0
    running: dict[int, int] = field(default_factory=dict)  # tenant: epoch, from grant to release
    revoked: dict[int, int] = field(default_factory=dict)  # those of them that are to release
    hung: set[int] = field(default_factory=set)
    epochs: list[int] = field(default_factory=lambda: [0])

    def do(self, event: Event) -> None:
        for action in self.a.handle(event, self.now):
            if isinstance(action, Grant):
                assert action.tenant not in self.running, "granted twice"
                self.running[action.tenant] = action.epoch
                self.epochs.append(action.epoch)
            elif isinstance(action, Revoke):
                assert self.running[action.tenant] == action.epoch
                self.revoked[action.tenant] = action.epoch
            elif isinstance(action, Forfeit):
                assert action.tenant in self.revoked
        self.check()

    def release(self, tenant: int) -> None:
        self.revoked.pop(tenant, None)
        self.do(Released(tenant, self.running.pop(tenant, 0)))

    def end(self, tenant: int) -> None:
        self.running.pop(tenant, None)
        self.revoked.pop(tenant, None)
        self.hung.discard(tenant)
        self.do(Closed(tenant))

    def restart(self) -> None:
        """The daemon is killed: what the tenants know is all there is."""
        old, self.now = self.a, max(self.now, self.a.now)
        self.a = Arbiter(
            dict.fromkeys(old.devices, CAPACITY),
            policy.make,
            first_epoch=old.epoch + 1000,
            now=self.now,
            grace_until=self.now + S,
        )
        for tenant in old.tenants.values():
            self.do(Opened(tenant.id, tenant.gang, tenant.lock, tenant.quantum_ns))
        for tenant_id, epoch in list(self.running.items()):
            if tenant_id not in self.hung:  # those say nothing
                self.adopt(tenant_id, epoch)
        for tenant_id in queue(old):
            self.do(Requested(tenant_id))

    def adopt(self, tenant: int, epoch: int) -> None:
        self.do(Adopted(tenant, epoch))
        lease = self.a.tenants[tenant].lease
        if lease is None or lease.epoch != epoch:  # it is told to release
            self.revoked[tenant] = epoch

    def check(self) -> None:
        a = self.a
        for uuid, device in a.devices.items():
            settled = [t for t in a.rules.holders(uuid) if t.lease and not t.lease.revoked]
            for one, other in itertools.combinations(settled, 2):
                assert a.rules.compatible(one, other), "two exclusive holders"
            assert {t.id for _, t in device.line} == {
                t.id for t in a.tenants.values() if t.place and t.heeds and uuid in t.gang
            }
        for tenant in a.tenants.values():
            held = [uuid for uuid in tenant.gang if tenant.id in a.devices[uuid].holders]
            assert held in ([], list(tenant.gang)), "half a gang"
            assert bool(held) == (tenant.lease is not None)
            assert not (tenant.waiting and tenant.lease)
        assert self.epochs == sorted(set(self.epochs)), "epochs only grow"
        if not a.rules.grace_until:
            self.check_queue()

    def check_queue(self) -> None:
        """Whoever waits, waits for somebody whose end is set, or for those before it."""
        a = self.a
        before: set[str] = set()
        cost = 0  # the quantum is as the first one's handoff wants it
        for tenant_id in queue(a):
            waiter = a.tenants[tenant_id]
            cost = max(cost, a.rules.handoff_ns(waiter))
            for holder in a.rules.in_the_way(waiter):
                assert holder.lease
                if a.rules.withheld(waiter):
                    continue
                assert holder.lease.due is not None, "no end to a lease in the way"
                longest = 2 * max(DRAIN_NS, a.rules.quantum(holder, cost))
                assert holder.lease.due <= a.now + longest
            if a.rules.is_free(waiter):
                # Work is conserved: only a gang before it that is nearly due keeps it waiting.
                assert before & set(waiter.gang), "a device idles that somebody could use"
                assert free_until(a, waiter) - a.now < worth(a, waiter)
            before |= set(waiter.gang)

    def step(self, kind: str, tenant: int, amount: int) -> None:
        known = self.a.tenants.get(tenant)
        device = f"d{tenant % 3}"
        if kind == "open" and known is None:
            lock = ("on", "auto", "off")[amount % 3]
            self.do(Opened(tenant, GANGS[amount % len(GANGS)], lock, QUANTUM))
        elif kind == "lock":
            self.do(LockSet(device, ("on", "auto", "off", None)[amount % 4]))
        elif kind == "drain":
            self.do(DrainSet(device, amount % 3 == 0))
        elif kind == "restart" and amount < 30:
            note("restart")
            self.restart()
        elif known is not None:
            self.step_of(kind, known.gang, tenant, amount)
        else:
            self.do(Tick())

    def step_of(self, kind: str, gang: tuple[str, ...], tenant: int, amount: int) -> None:
        """What a tenant that exists may do."""
        if kind == "close":
            self.end(tenant)
        elif kind == "late":
            self.do(Released(tenant, amount))
        elif kind == "memory":
            self.do(MemoryChanged(tenant, gang[amount % len(gang)], amount * GB))
        elif kind == "hang":
            note("hang")
            self.hung.symmetric_difference_update({tenant})
        elif tenant in self.hung or kind == "tick":
            self.do(Tick())
        elif tenant in self.revoked or (kind == "yield" and tenant in self.running):
            self.release(tenant)
        elif tenant not in self.running:
            self.do(Requested(tenant))

    def pass_time(self, until: int) -> None:
        """Every deadline on the way is met."""
        while (due := self.a.next_deadline()) is not None and due <= until:
            self.now = max(self.now, due)
            self.do(Tick())
        self.now = until


@pytest.mark.long
@settings(max_examples=200, deadline=None)
@given(steps)
def test_any_order_of_events_keeps_the_rules(
    sequence: list[tuple[str, int, int, int]],
) -> None:
    world = World()
    for kind, tenant, amount, passed in sequence:
        # The clock may step back: then it stands still.
        world.pass_time(world.now + passed)
        world.step(kind, tenant, amount)
    assert_sums_add_up(world.a, world.now)


def assert_sums_add_up(a: Arbiter, now: int) -> None:
    a.handle(Tick(), now)
    assert a.now >= now
    for uuid, device in a.devices.items():
        used = [a.usage(t.id, now)[uuid] for t in a.tenants.values() if uuid in t.gang]
        assert sum(u.lease_ns for u in used) <= max(0, a.now), "more leases than time"
        assert all(u.lease_ns >= 0 and u.wait_ns >= 0 for u in used)
        shares = device.residency.shares
        assert device.residency.total == sum(s.bytes for s in shares.values())
        assert device.residency.resident == sum(s.resident for s in shares.values())
        residency = device.residency
        orders = [*residency.resting, *residency.queued, *residency.holding]
        assert sorted(orders) == sorted(t for t, s in shares.items() if s.resident), "each in one"
        assert set(residency.holding) <= set(device.holders)


@dataclass
class Greedy:
    """Tenants that ask again as soon as they have released, and drain in so many ns."""

    drain: int
    a: Arbiter = field(default_factory=lambda: arbiter(3))
    now: int = 0
    asked: dict[int, tuple[int, int]] = field(default_factory=dict)
    todo: list[tuple[int, Event]] = field(default_factory=list)  # what happens when
    turns: dict[int, int] = field(default_factory=dict)

    def do(self, event: Event) -> None:
        if isinstance(event, Requested):
            self.asked[event.tenant] = self.now, len(queue(self.a))
        for action in self.a.handle(event, self.now):
            if isinstance(action, Grant):
                since, before = self.asked.pop(action.tenant)
                waited = self.now - since
                assert waited <= (before + 1) * (QUANTUM + self.drain), "waited too long"
                self.turns[action.tenant] += 1
            elif isinstance(action, Revoke):
                self.todo.append((self.now + self.drain, Released(action.tenant, action.epoch)))
        if isinstance(event, Released):
            self.do(Requested(event.tenant))

    def run(self, until: int) -> None:
        while self.now < until:
            due = self.a.next_deadline()
            times = [when for when, _ in self.todo] + ([] if due is None else [due])
            if not times:
                return
            self.now = max(self.now, min(times))
            ready = [item for item in self.todo if item[0] <= self.now]
            for item in ready:
                self.todo.remove(item)
                self.do(item[1])
            if not ready:
                self.do(Tick())


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(GANGS), st.sampled_from(["on", "auto"]), st.integers(0, 3 * S)),
        min_size=2,
        max_size=14,
    ),
    st.integers(0, S),
)
def test_every_waiter_gets_its_turn_within_the_bound(
    arrivals: list[tuple[tuple[str, ...], str, int]], drain: int
) -> None:
    """With k before it a waiter waits at most for k + 1 quanta and drains."""
    world = Greedy(drain)
    for device in world.a.devices.values():  # memory that never fits: turns, for lock auto too
        world.a.handle(RoomChanged(device.uuid, 0), 0)
    for tenant, (gang, lock, after) in enumerate(arrivals):
        opened(world.a, tenant, lock, gang)
        for uuid in gang:
            world.a.handle(MemoryChanged(tenant, uuid, GB), 0)
        world.turns[tenant] = 0
        world.todo.append((after, Requested(tenant)))
    world.run((len(arrivals) + 2) * (QUANTUM + S))
    assert all(world.turns.values()), "a waiter was passed over"


def test_lease_seconds_of_a_device_never_exceed_the_clock() -> None:
    a = arbiter()
    for tenant in (1, 2, 3):
        opened(a, tenant, "auto")
        a.handle(Requested(tenant), 0)
    for _ in range(2):  # to ask changes nothing
        used = [a.usage(tenant, 9 * S)["d0"] for tenant in a.tenants]
        assert [u.lease_ns for u in used] == [3 * S] * 3
        assert [u.shared_ns for u in used] == [9 * S] * 3


def test_the_cost_of_a_handoff_does_not_grow_with_the_waiters() -> None:
    """Counted in lines that run, which no load of the machine changes."""
    assert lines_of_handoffs(200) <= 1.1 * lines_of_handoffs(2)


def lines_of_handoffs(waiting: int) -> int:
    a, now, count = arbiter(), 0, 0
    for tenant in range(waiting + 1):
        opened(a, tenant)
        a.handle(MemoryChanged(tenant, "d0", 60 * GB), 0)
        a.handle(Requested(tenant), 0)

    def trace(frame: FrameType, kind: str, _: Any) -> Any:
        nonlocal count
        count += kind == "line" and "/leased/" in frame.f_code.co_filename
        return trace

    for turn in range(2 * waiting + 10):
        sys.settrace(trace if turn >= 2 * waiting else None)
        now = a.next_deadline() or now
        (revoke,) = of(Revoke, a.handle(Tick(), now))
        assert isinstance(revoke, Revoke)
        a.handle(Released(revoke.tenant, revoke.epoch), now)
        a.handle(Requested(revoke.tenant), now)
    sys.settrace(None)
    return count
