"""Who is of a chain."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from leased.chains.membership import JOBS_MOST, are_joined, is_full, members


@dataclass(eq=False)
class Job:
    chain: str = "c"
    uid: int = 1
    gang: tuple[str, ...] = ("GPU-0",)


@pytest.mark.parametrize(
    ("other", "joined"),
    [
        (Job(), True),
        (Job(gang=("GPU-1", "GPU-0")), True),
        (Job(uid=2), False),
        (Job(chain="d"), False),
        (Job(chain=""), False),
        (Job(gang=("GPU-1",)), False),
    ],
)
def test_jobs_of_one_user_with_one_name_on_one_gpu_are_a_chain(other: Job, joined: bool) -> None:
    job = Job()
    assert are_joined(job, other) == are_joined(other, job) == joined
    assert members(job, [other, job]) == [other, job] * joined + [job] * (not joined)


def test_jobs_that_name_no_chain_are_each_alone() -> None:
    one, other = Job(chain=""), Job(chain="")
    assert are_joined(one, one)
    assert not are_joined(one, other)


def test_a_chain_is_full_with_so_many_jobs_on_one_gpu() -> None:
    jobs = [Job() for _ in range(JOBS_MOST)]
    assert is_full(Job(), jobs)
    assert not is_full(jobs[0], jobs)
    assert not is_full(Job(uid=2), jobs)
    assert is_full(Job(gang=("GPU-1", "GPU-0")), jobs)
    assert not is_full(Job(gang=("GPU-0", "GPU-1")), [*jobs[1:], Job(gang=("GPU-1",))])
