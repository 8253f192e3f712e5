"""Time slices, and parts of the multiprocessors, that keep a chain to a division."""

from __future__ import annotations

import pytest

from leased.chains.shares import Part, parts, slices
from leased.slices.job import LONG_US


@pytest.mark.parametrize(
    ("division", "expected"),
    [
        ({7: 100, 8: 100}, {}),
        ({7: 100, 8: 5}, {7: LONG_US, 8: LONG_US // 20}),
        ({7: 50, 8: 50}, {7: LONG_US // 2, 8: LONG_US // 2}),
        ({}, {}),
    ],
)
def test_slices_are_in_proportion(division: dict[int, int], expected: dict[int, int]) -> None:
    assert slices(division) == expected


@pytest.mark.parametrize(
    ("division", "begins"),
    [
        ({7: 100, 8: 100}, [0, 0]),
        ({7: 30, 8: 100, 9: 40}, [0, 0, 300]),
        ({7: 50, 8: 50, 9: 50}, [0, 500, 0]),
        ({7: 60, 8: 60}, [0, 400]),
    ],
)
def test_parts_lie_side_by_side_as_far_as_they_fit(
    division: dict[int, int], begins: list[int]
) -> None:
    found = parts(division)
    assert found == {pid: Part(percent, at) for (pid, percent), at in zip(division.items(), begins)}
    assert all(part.percent * 10 + part.begins <= 1000 for part in found.values())
