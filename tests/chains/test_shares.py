"""Time slices that keep the processes of a chain to a division."""

from __future__ import annotations

import pytest

from leased.chains.shares import slices
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
