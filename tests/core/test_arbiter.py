"""The arbiter: its rules one by one, then under anything that can happen."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from leased import policy
from leased.core.actions import Action, Contend, Evict, Forfeit, Grant, Overrun, Restore, Revoke
from leased.core.arbiter import DRAIN_NS, Arbiter
from leased.core.contention import IDLE_FLOOR_NS
from leased.core.events import (
    Adopted,
    CameBack,
    Closed,
    DrainSet,
    Listens,
    LockSet,
    MemoryChanged,
    Opened,
    QuantumSet,
    Rejoined,
    Released,
    Requested,
    Tick,
    Widened,
)
from leased.core.rules import HANDOFF_SHARE
from leased.core.state import FIRST_CALM_NS
from tests.core.line import queue

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


def test_a_clock_that_steps_back_stands_still() -> None:
    a = arbiter()
    opened(a, 1)
    a.handle(Requested(1), 5 * S)
    a.handle(Tick(), 3 * S)
    assert a.now == 5 * S
    assert a.usage(1, 4 * S)["d0"].lease_ns == 0


def test_late_release_of_an_old_epoch_changes_nothing() -> None:
    a = arbiter()
    opened(a, 1)
    a.handle(Requested(1), 0)
    a.handle(Released(1, 1), S)
    a.handle(Requested(1), S)
    assert a.handle(Released(1, 1), S) == []
    assert a.tenants[1].lease is not None


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
