"""How many pieces of host memory jobs may have."""

from __future__ import annotations

import itertools

import pytest

from leased.base.errors import Refused
from leased.copies.pool import PIECES, PIECES_OF_A_JOB, Key, Pool
from leased.processes.identity import ProcessId

UNIT = 2 << 20
LEFT = 1 << 50


def fill(pool: Pool, job: int, most: int) -> int:
    """The job takes small pieces until it gets no more. Returns how many it got."""
    for number in itertools.count():
        key = Key(job, ProcessId(job, 1), number)
        try:
            pool.check(key, UNIT, LEFT, LEFT)
        except Refused:
            return number
        pool.add(key, UNIT)
        if number == most:
            return most
    raise AssertionError


def test_one_job_has_only_so_many() -> None:
    assert fill(Pool(), 1, PIECES) == PIECES_OF_A_JOB


def test_a_few_jobs_leave_enough_for_all_others() -> None:
    pool = Pool()
    taken = sum(fill(pool, job, PIECES) for job in range(1, 6))
    assert taken < PIECES
    for job in range(6, 100):
        assert fill(pool, job, 50) == 50


def test_all_jobs_together_have_only_so_many() -> None:
    pool = Pool()
    for job in range(1, 1000):
        fill(pool, job, PIECES)
    assert len(pool.bytes) == PIECES
    with pytest.raises(Refused, match="too many pieces"):
        pool.check(Key(1000, ProcessId(1000, 1), 1), UNIT, LEFT, LEFT)
