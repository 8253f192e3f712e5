"""One deadline for each key, in order, and no more memory than the keys need."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leased import policy
from leased.core.arbiter import Arbiter
from leased.core.deadlines import FEW, Deadlines
from leased.core.events import Opened, Released, Requested
from tests.core.items import items

S = 1_000_000_000


@given(
    st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 20))), max_size=60)
)
def test_the_last_word_on_a_key_counts(said: list[tuple[int, int | None]]) -> None:
    deadlines: Deadlines[int] = Deadlines(lambda _: None)
    expected: dict[int, int] = {}
    for key, when in said:
        deadlines.put(key, when)
        expected.pop(key, None)
        if when is not None:
            expected[key] = when
        assert deadlines.first() == min(expected.values(), default=None)
        assert len(deadlines) == len(expected)
    while (first := deadlines.first()) is not None:
        assert deadlines.pop(first - 1) is None
        due = deadlines.pop(first)
        assert due is not None
        assert expected.pop(due) == first
    assert not expected


def test_changes_behind_a_far_deadline_take_no_memory() -> None:
    deadlines: Deadlines[str] = Deadlines(lambda _: None)
    deadlines.put("far", 600 * S)
    deadlines.put("near", S)
    deadlines.put("near", None)
    most = 0
    for turn in range(10_000):
        deadlines.put("other", 700 * S + turn)
        most = max(most, items(deadlines))
    assert most <= 5 * FEW


def test_the_arbiter_does_not_grow_beside_a_long_quantum() -> None:
    """Two jobs could hold a device for ten minutes, and yield it to each other at once."""
    a = Arbiter({"d0": 1}, policy.make)
    for tenant in (1, 2):
        a.handle(Opened(tenant, ("d0",), "on", 600 * S), 0)
        a.handle(Requested(tenant), 0)
    before = items(a)
    for turn in range(1000):
        (holder,) = a.rules.holders("d0")
        assert holder.lease
        a.handle(Released(holder.id, holder.lease.epoch), turn)
        a.handle(Requested(holder.id), turn)
    assert items(a) <= before + 5 * FEW
