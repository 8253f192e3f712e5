"""How much host memory is made ahead of handoffs, and for whom next."""

from __future__ import annotations

from leased.copies.line import KEPT_NS, SLICE, Line, Place

A, B = (1, "d0"), (2, "d0")
ALL = 1 << 60


def beat(
    line: Line, wanted: dict[Place, int], most: int = ALL, now: int = 0, slices: int = 1
) -> None:
    line.enter(wanted, {})
    line.advance(wanted, most, slices * SLICE, now)


def test_it_grows_a_slice_at_a_time_where_least_of_it_is_there() -> None:
    line = Line()
    for _ in range(4):
        beat(line, {A: 10 * SLICE, B: 10 * SLICE})
    assert line.told == {A: 2 * SLICE, B: 2 * SLICE}
    beat(line, {A: 10 * SLICE, B: 2 * SLICE}, slices=100)
    assert line.told == {A: 10 * SLICE, B: 2 * SLICE}


def test_no_more_than_is_wanted_and_no_more_than_the_limit() -> None:
    line = Line()
    beat(line, {A: 3}, slices=2)
    assert line.told == {A: 3}
    beat(line, {A: 3, B: 10 * SLICE}, most=SLICE, slices=100)
    assert line.told == {A: 3, B: SLICE - 3}
    beat(line, {A: 4, B: 10 * SLICE}, most=SLICE // 2, slices=100)
    assert line.total == SLICE, "a lower limit takes nothing back that may be needed"


def test_memory_that_is_no_longer_wanted_is_kept_for_a_while() -> None:
    line = Line()
    beat(line, {A: SLICE})
    for now in (1, KEPT_NS):
        beat(line, {A: 5}, now=now)
        assert line.told == {A: SLICE}
    beat(line, {A: SLICE}, now=KEPT_NS)  # it is wanted again
    beat(line, {A: 0}, now=KEPT_NS + 2)
    beat(line, {A: 0}, now=2 * KEPT_NS + 1)
    assert line.told == {A: SLICE}
    beat(line, {A: 0}, now=2 * KEPT_NS + 2)
    assert line.told == {A: 0}


def test_a_job_that_has_ended_is_forgotten() -> None:
    line = Line()
    beat(line, {A: SLICE, B: 0})
    beat(line, {A: 0, B: 0})
    beat(line, {B: 0})
    assert line.told == {B: 0}
    assert not line.low


def test_memory_made_for_a_previous_daemon_counts() -> None:
    line = Line()
    wanted = {A: 3 * SLICE, (1, "d1"): SLICE, (1, "d2"): 0, B: 0}
    line.enter(wanted, {1: 6 * SLICE, 2: 4})
    assert line.told == {A: 3 * SLICE, (1, "d1"): SLICE, (1, "d2"): 2 * SLICE, B: 4}
    line.advance(wanted, ALL, SLICE, 0)
    line.advance(wanted, ALL, SLICE, KEPT_NS)
    assert line.told == {A: 3 * SLICE, (1, "d1"): SLICE, (1, "d2"): 0, B: 0}
