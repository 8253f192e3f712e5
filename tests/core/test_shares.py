"""Tenants that request more of a device's time than is left wait for it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leased import policy
from leased.core.actions import Action, Grant
from leased.core.arbiter import Arbiter
from leased.core.events import Closed, Opened, Requested, Widened
from leased.core.shares import ROUNDED

S = 1_000_000_000
GIB = 1 << 30


def arbiter() -> Arbiter:
    return Arbiter({"d0": GIB, "d1": GIB}, policy.make)


def opens(a: Arbiter, tenant: int, request: float, gang: tuple[str, ...] = ("d0",)) -> None:
    a.handle(Opened(tenant, gang, "on", S, request=request), a.now)


def granted(actions: list[Action]) -> list[int]:
    return [action.tenant for action in actions if isinstance(action, Grant)]


def waiting(a: Arbiter) -> list[int]:
    return list(a.rules.shares.waiting)


def test_it_gets_no_lease_though_the_device_is_free() -> None:
    a = arbiter()
    opens(a, 1, 0.7)
    opens(a, 2, 0.4)
    assert granted(a.handle(Requested(2), 0)) == []
    assert granted(a.handle(Closed(1), S)) == [2]


def test_a_gang_waits_for_all_its_devices_and_keeps_none_from_others_in_vain() -> None:
    a = arbiter()
    opens(a, 1, 0.7, ("d1",))
    opens(a, 2, 0.4, ("d0", "d1"))
    opens(a, 3, 0.4, ("d0",))
    assert waiting(a) == [2, 3], "3 came later, so that smaller ones cannot pass 2 for ever"
    a.handle(Closed(2), S)
    assert waiting(a) == []


def test_a_wider_gang_waits_where_too_little_is_left() -> None:
    a = arbiter()
    opens(a, 1, 0.7, ("d1",))
    opens(a, 2, 0.4)
    a.handle(Widened(2, ("d0", "d1")), S)
    assert waiting(a) == [2]
    assert a.rules.shares.requested("d0") == 0
    a.handle(Closed(1), S)
    assert waiting(a) == []


Step = tuple[int, int, tuple[str, ...]]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 100), st.sampled_from([("d0",), ("d1",), ("d0", "d1")])
    ),
    max_size=40,
)


@given(STEPS)
def test_requests_that_count_are_never_above_1_and_who_waits_has_a_reason(
    steps: list[Step],
) -> None:
    a = arbiter()
    there: dict[int, tuple[float, tuple[str, ...]]] = {}
    for tenant, percent, gang in steps:
        if tenant in there:
            del there[tenant]
            a.handle(Closed(tenant), a.now)
        else:
            there[tenant] = percent / 100, gang
            opens(a, tenant, percent / 100, gang)
        waits = waiting(a)
        for uuid in ("d0", "d1"):
            counts = sum(r for t, (r, g) in there.items() if uuid in g and t not in waits)
            assert counts <= 1 + ROUNDED / 1e6
            assert abs(counts - a.rules.shares.requested(uuid)) < 1e-9
        if waits:  # the first of them does not fit
            request, of = there[waits[0]]
            assert any(a.rules.shares.requested(uuid) + request > 1 for uuid in of)
