"""The arbiter: its rules one by one, then under anything that can happen."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from leased.arbiter import (
    DRAIN_NS,
    HANDOFF_SHARE,
    IDLE_FLOOR_NS,
    Action,
    Adopted,
    Arbiter,
    Closed,
    Contend,
    Event,
    Grant,
    LockSet,
    MemoryChanged,
    Opened,
    Overrun,
    Released,
    Requested,
    Restore,
    Revoke,
    Tick,
)

GB = 1 << 30
S = 1_000_000_000
CAPACITY = 100 * GB


def arbiter(devices: int = 1) -> Arbiter:
    return Arbiter({f"d{n}": CAPACITY for n in range(devices)})


def opened(a: Arbiter, tenant: int, lock: str = "on", gang: tuple[str, ...] = ("d0",)) -> None:
    a.handle(Opened(tenant, gang, lock, 10 * S), a.now)


def of(kind: type, actions: list[Action]) -> list[Action]:
    return [action for action in actions if isinstance(action, kind)]


def test_alone_means_no_deadline_and_no_message() -> None:
    a = arbiter()
    opened(a, 1)
    actions = a.handle(Requested(1), 0)
    assert actions == [Grant(1, 1, False, 10 * S, {"d0": 0})]
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
    assert of(Grant, a.handle(Released(1, 1), 10 * S)) == [Grant(2, 2, False, 10 * S, {"d0": 0})]


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
    assert of(Grant, a.handle(Requested(1), 0)) == [Grant(1, 1, True, 10 * S, {"d0": 0})]
    assert of(Grant, a.handle(Requested(2), 0)) == [Grant(2, 2, True, 10 * S, {"d0": 0})]
    # The one that came last goes, as soon as it does not fit.
    assert a.handle(MemoryChanged(2, "d0", 50 * GB), S) == [Revoke(2, 2, DRAIN_NS)]
    a.handle(Released(2, 2), S)
    assert of(Contend, a.handle(Requested(2), S))
    # And is back beside the other when it fits again.
    actions = a.handle(MemoryChanged(1, "d0", 10 * GB), 2 * S)
    assert [g.shared for g in actions if isinstance(g, Grant)] == [True]


def test_who_stays_gets_back_what_the_other_displaced() -> None:
    a = arbiter()
    for tenant in (1, 2):
        opened(a, tenant, "auto")
        a.handle(Requested(tenant), 0)
    a.handle(MemoryChanged(1, "d0", 80 * GB), 0)
    assert of(Revoke, a.handle(MemoryChanged(2, "d0", 70 * GB), S)) == [Revoke(2, 2, DRAIN_NS)]
    # Until it had drained, the second pushed 50 GB of the first one out.
    assert a.handle(Released(2, 2), 2 * S) == [Restore(1, 1, 10 * S, {"d0": 50 * GB})]


def test_lock_off_never_waits_and_the_site_can_forbid_it() -> None:
    a = arbiter()
    opened(a, 1, "on")
    opened(a, 2, "off")
    a.handle(Requested(1), 0)
    assert of(Grant, a.handle(Requested(2), 0))
    assert of(Revoke, a.handle(LockSet("d0", "on"), S)) == [Revoke(2, 2, DRAIN_NS)]


def test_a_handoff_is_at_most_a_tenth_of_the_quantum() -> None:
    a = arbiter()
    a.devices["d0"].residency.link_bytes_s = 10 * GB
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


def test_a_wide_gang_is_not_starved_by_narrow_ones() -> None:
    a = arbiter(2)
    opened(a, 1, "on", ("d0",))
    opened(a, 2, "on", ("d0", "d1"))
    opened(a, 3, "on", ("d1",))
    a.handle(Requested(1), 0)
    a.handle(Requested(2), 0)
    # d1 is free, but it is the gang's: tenant 3 came later.
    assert of(Grant, a.handle(Requested(3), 0)) == []
    assert [g.tenant for g in a.handle(Released(1, 1), S) if isinstance(g, Grant)] == [2]


def test_adopted_after_a_restart_keeps_the_device_and_epochs_grow() -> None:
    a = Arbiter({"d0": CAPACITY}, first_epoch=50, grace_until=S)
    opened(a, 1)
    opened(a, 2)
    assert of(Grant, a.handle(Requested(2), 0)) == []
    a.handle(Adopted(1, 77), S // 2)
    assert of(Grant, a.handle(Tick(), S)) == []
    grants = [g for g in a.handle(Released(1, 77), 2 * S) if isinstance(g, Grant)]
    assert [(g.tenant, g.epoch) for g in grants] == [(2, 78)]


def test_late_release_of_an_old_epoch_changes_nothing() -> None:
    a = arbiter()
    opened(a, 1)
    a.handle(Requested(1), 0)
    a.handle(Released(1, 1), S)
    a.handle(Requested(1), S)
    assert a.handle(Released(1, 1), S) == []
    assert a.tenants[1].lease is not None


GANGS = [("d0",), ("d1",), ("d2",), ("d0", "d1"), ("d1", "d2"), ("d0", "d1", "d2")]

steps = st.lists(
    st.tuples(
        st.sampled_from(["request", "release", "memory", "close", "open", "tick", "late", "lock"]),
        st.integers(0, 7),
        st.integers(0, 120),
        st.integers(-2 * S, 15 * S),
    ),
    max_size=120,
)


def event_of(a: Arbiter, kind: str, tenant: int, amount: int) -> Event:
    """What a step stands for now; a Tick where it makes no sense."""
    known = a.tenants.get(tenant)
    if kind == "lock":
        return LockSet(f"d{tenant % 3}", ("on", "auto", "off", None)[amount % 4])
    if kind == "open" and known is None:
        return Opened(tenant, GANGS[amount % len(GANGS)], ("on", "auto", "off")[amount % 3], 10 * S)
    if kind in ("tick", "open") or known is None:
        return Tick()
    events: dict[str, Event] = {
        "release": Released(tenant, known.lease.epoch if known.lease else 0),
        "late": Released(tenant, amount),
        "memory": MemoryChanged(tenant, known.gang[amount % len(known.gang)], amount * GB),
        "request": Requested(tenant),
        "close": Closed(tenant),
    }
    return events[kind]


def check_invariants(a: Arbiter) -> None:
    for uuid in a.devices:
        settled = [t for t in a.holders(uuid) if t.lease and not t.lease.revoked]
        for one in settled:
            for other in settled:
                assert one is other or a._compatible(one, other), "two exclusive holders"
    for tenant in a.tenants.values():
        assert (tenant.id in a.queue) == tenant.waiting
        assert not (tenant.waiting and tenant.lease)
    if a.queue:
        first = a.tenants[a.queue[0]]
        assert a._in_the_way(first), "the first in the queue waits for nobody"
        for blocker in a._in_the_way(first):
            lease = blocker.lease
            assert lease is not None
            # Somebody waits: there is an end to every lease in the way.
            assert lease.revoked or lease.revoke_at is not None


@settings(max_examples=300, deadline=None)
@given(steps)
def test_any_order_of_events_keeps_the_rules(
    sequence: list[tuple[str, int, int, int]],
) -> None:
    a, now, epochs = arbiter(3), 0, [0]
    for kind, tenant, amount, passed in sequence:
        now += passed  # the clock may step back: then it stands still
        event = event_of(a, kind, tenant, amount)
        waiting = bool(a.queue)
        actions = a.handle(event, now)
        epochs += [action.epoch for action in actions if isinstance(action, Grant)]
        if not waiting and not a.queue and isinstance(event, Tick):
            assert not [x for x in actions if isinstance(x, Contend)]
        check_invariants(a)
    assert epochs == sorted(set(epochs)), "epochs only grow"


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=12))
def test_every_waiter_gets_its_turn(arrivals: list[tuple[int, int]]) -> None:
    a = arbiter(3)
    for tenant, (gang, _) in enumerate(arrivals):
        opened(a, tenant, "on", GANGS[gang])
        a.handle(Requested(tenant), 0)
    granted = {t.id for t in a.tenants.values() if t.lease}
    turns = 0
    while len(granted) < len(arrivals):
        turns += 1
        assert turns <= len(arrivals), "a waiter was passed over"
        due = a.next_deadline()
        assert due is not None
        for action in a.handle(Tick(), due):
            if isinstance(action, Revoke):
                a.handle(Released(action.tenant, action.epoch), due)
        granted |= {t.id for t in a.tenants.values() if t.lease}


def test_lease_seconds_of_a_device_never_exceed_the_clock() -> None:
    a = arbiter()
    for tenant in (1, 2, 3):
        opened(a, tenant, "auto")
        a.handle(Requested(tenant), 0)
    a.handle(Tick(), 9 * S)
    used = [t.usage["d0"] for t in a.tenants.values()]
    assert [u.lease_ns for u in used] == [3 * S] * 3
    assert [u.shared_ns for u in used] == [9 * S] * 3
