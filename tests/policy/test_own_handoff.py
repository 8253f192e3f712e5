"""A turn is worth the memory that was brought in for it, whoever comes next."""

from __future__ import annotations

import pytest

from leased import policy
from tests.bench.fair import Measured, greedy


@pytest.mark.parametrize("name", policy.names())
def test_two_jobs_of_one_size_have_the_same_beside_a_small_one(name: str) -> None:
    """The small one's memory is always there, so a handoff to it moves nothing. The one that it
    follows must not have brought in all of its memory for a turn of a second."""
    jobs = [greedy(swaps=True, size=size, speed=50) for size in (90, 5, 90)]
    had = Measured(jobs, 2000, name).lease_ns
    assert had[0] == pytest.approx(had[2], rel=0.3)
