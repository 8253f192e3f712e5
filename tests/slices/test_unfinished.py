"""What part of the device jobs have, by how long they have unfinished work."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leased.slices.unfinished import parts

ONE = {1: 1, 2: 1, 3: 1}


def test_two_that_always_have_work_have_a_half_each() -> None:
    """Whatever NVML says: on a card it gave one of two such jobs all of most samples."""
    assert parts({1: 1.0, 2: 0.97}, ONE, ()) == {1: 0.5, 2: 0.5}


def test_a_service_is_the_same_with_the_driver_s_slices_and_favored() -> None:
    """3.1 ms of work every 20 ms: 7 ms beside another job's slices, 3.4 ms uninterrupted."""
    slow = parts({1: 0.35, 2: 1.0}, ONE, ())
    fast = parts({1: 0.17, 2: 1.0}, ONE, {1})
    assert slow[1] == pytest.approx(0.175)
    assert fast[1] == pytest.approx(0.17)
    assert slow[2] == pytest.approx(0.825)


def test_processes_that_always_have_work_have_a_part_each() -> None:
    assert parts({1: 1.0, 2: 1.0}, {1: 3, 2: 1}, ()) == {1: 0.75, 2: 0.25}


@given(st.dictionaries(st.integers(1, 9), st.floats(0, 1), min_size=1), st.sets(st.integers(1, 9)))
def test_together_no_more_than_all_where_somebody_always_has_work(
    unfinished: dict[int, float], favored: set[int]
) -> None:
    found = parts(unfinished, dict.fromkeys(unfinished, 1), favored - {1})
    assert set(found) == set(unfinished)
    assert all(0 <= part <= 1 for part in found.values())
