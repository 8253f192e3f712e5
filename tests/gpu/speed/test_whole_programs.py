"""The bound of what calls add to a whole program."""

from __future__ import annotations

import pytest

from tests.gpu.speed.calls import added_by
from tests.gpu.speed.counting import Counted
from tests.gpu.speed.whole_programs import bound

COSTS = {"launch": 100.0, "copy": -5.0, "address": 50.0}
CALLS = {"cuLaunchKernel": 1_000_000, "cuMemcpyAsync": 10, "cuEventRecord": 10**9}


def test_functions_whose_cost_is_not_known_are_named_and_others_bounded() -> None:
    added = added_by({"cuLaunchKernel": 20, "cuMemCreate": 3, "cuGetProcAddress_v2": 2}, COSTS)
    assert added.us == pytest.approx(2.1)
    assert added.unknown == {"cuMemCreate": 3}


def test_what_is_added_is_a_part_of_the_time_of_the_calls() -> None:
    # 6 s of imports stay in a bare run of 10 s, of which 4 are calls; counting made them 7.
    found = bound(Counted(CALLS, 7.0, 1), counted_s=13.0, bare_s=10.0, costs=COSTS)
    assert found.span_s == pytest.approx(4.0)
    assert found.span == pytest.approx(1.025)
    assert found.whole == pytest.approx(1.01)
    assert (found.calls, found.unknown, found.why) == (10**9 + 1_000_010, {}, "")
    assert found.words() == "at most 1.02500"


def test_the_time_of_calls_is_no_longer_than_the_run() -> None:
    assert bound(Counted(CALLS, 9.0, 1), 9.0, 8.0, COSTS).span_s == 8.0


def test_where_no_time_remains_for_calls_the_bound_of_the_process_stands() -> None:
    found = bound(Counted(CALLS, 1.0, 1), counted_s=20.0, bare_s=10.0, costs=COSTS)
    assert found.span is None
    assert found.whole == pytest.approx(1.01)
    assert "not known" in found.words()


def test_what_is_missing_is_said() -> None:
    counted = Counted({"cuLaunchKernel": 10, "cuMemCreate": 4}, 5.0, 1, unfinished=2)
    words = bound(counted, 6.0, 6.0, COSTS).words()
    assert "without cuMemCreate (4)" in words
    assert "2 processes did not end by exit()" in words


def test_without_costs_there_is_no_bound() -> None:
    found = bound(Counted(CALLS, 5.0, 1), 6.0, 6.0, {})
    assert (found.span, found.whole) == (None, None)
    assert "not measured" in found.words()
