"""Whose jobs may be together on a GPU under MPS."""

from __future__ import annotations

import pytest

from leased.base.errors import Refused
from leased.mps.together import APART_S, USERS_MOST, Coming, Together
from leased.placement.api import ANY, CHAIN, USER


def job(uid: int, chain: str = "") -> Coming:
    return Coming(uid, ("GPU-0",), chain)


def test_jobs_of_one_user_are_always_together() -> None:
    rules = Together()
    rules.fault([1, 1], 0.0)
    rules.check(0, USER, job(1), [job(1), job(1)], 0.0)


def test_jobs_of_several_users_need_the_site_s_word() -> None:
    with pytest.raises(Refused, match="only jobs of one user are on GPU 3 at once"):
        Together().check(3, USER, job(1), [job(2)], 0.0)
    Together().check(3, ANY, job(1), [job(2)], 0.0)


@pytest.mark.parametrize(
    ("comes", "there", "may"),
    [
        (job(1, "a"), [job(1, "a")], True),
        (job(1), [], True),
        (job(1, "a"), [job(1, "a"), job(1, "b")], False),
        (job(1, "a"), [job(2, "a")], False),
        (job(1), [job(1)], False),
    ],
)
def test_where_a_site_says_so_only_a_chain_is_together(
    comes: Coming, there: list[Coming], may: bool
) -> None:
    if may:
        Together().check(0, CHAIN, comes, there, 0.0)
        return
    with pytest.raises(Refused, match="only jobs of one chain are on GPU 0 at once"):
        Together().check(0, CHAIN, comes, there, 0.0)


def test_users_who_have_lost_work_together_are_apart_for_a_time() -> None:
    rules = Together()
    rules.fault([1, 2, 2], 100.0)
    for uid, other in ((1, 2), (2, 1)):
        with pytest.raises(Refused, match="a fault of one has ended both") as said:
            rules.check(0, ANY, job(uid), [job(other)], 100.0)
        assert said.value.hint.startswith("submit the job again in 60 minutes")
    rules.check(0, ANY, job(1), [job(3)], 100.0)
    rules.check(0, ANY, job(1), [job(2)], 100.0 + APART_S)
    rules.fault([3, 4], 100.0 + APART_S)
    assert list(rules.until) == [frozenset((3, 4))], "pairs whose time is over are forgotten"


def test_a_fault_of_very_many_users_is_remembered_in_bounds() -> None:
    rules = Together()
    rules.fault(range(1000), 0.0)
    assert len(rules.until) == USERS_MOST * (USERS_MOST - 1) // 2
