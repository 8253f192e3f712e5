"""Lease time side by side is divided by the work of that time, and not by other work of the job."""

from __future__ import annotations

import pytest

from leased import policy
from leased.core.arbiter import Arbiter
from leased.core.events import Opened, Requested, WorkMeasured
from leased.usage.gauge import WorkPart

S = 1_000_000_000
FIRST, SECOND = 1, 2


def leases(busy: int | None, first: int, second: int, comes: int = S // 2) -> tuple[float, float]:
    """Seconds of lease of two jobs in a second: the first alone until the second comes. busy:
    percent of the second; then how much of the work was whose."""
    a = Arbiter({"d0": 100}, policy.make)
    for tenant, at in ((FIRST, 0), (SECOND, comes)):
        a.handle(Opened(tenant, ("d0",), "off", S), at)
        a.handle(Requested(tenant), at)
    parts = WorkPart(FIRST, first), WorkPart(SECOND, second)
    a.handle(WorkMeasured("d0", S, busy, None, parts), S)
    one, other = (a.usage(tenant, S)["d0"].lease_ns / S for tenant in (FIRST, SECOND))
    return round(one, 3), round(other, 3)


def test_who_came_in_between_has_its_part_of_the_time_in_which_it_was_there() -> None:
    """The first worked for half a second alone, then both worked for a quarter of a second."""
    assert leases(100, 75, 25) == (0.75, 0.25)
    assert leases(100, 60, 40, comes=S // 5) == (0.6, 0.4)


def test_who_idles_alone_has_not_worked_then() -> None:
    """The first worked half the time, alone and beside the other, which worked as much."""
    assert leases(75, 50, 25) == (0.75, 0.25)


def test_without_a_figure_of_the_whole_the_work_is_spread_over_the_time() -> None:
    """0.75 for 0.5 alone and 0.5 beside the other is 0.375 beside the other's 0.25."""
    assert leases(None, 75, 25) == (0.8, 0.2)


@pytest.mark.parametrize(("first", "second"), [(75, 25), (99, 1), (100, 0), (50, 50)])
def test_who_are_side_by_side_all_the_time_are_divided_by_all_their_work(
    first: int, second: int
) -> None:
    one, other = max(first, 1), max(second, 1)
    expected = round(one / (one + other), 3), round(other / (one + other), 3)
    assert leases(100, first, second, comes=0) == expected
