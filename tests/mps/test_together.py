"""Whose jobs may be together on a GPU under MPS."""

from __future__ import annotations

import pytest

from leased.base.errors import Refused
from leased.mps.together import APART_S, USERS_MOST, Together


def test_jobs_of_one_user_are_always_together() -> None:
    rules = Together()
    rules.fault([1, 1], 0.0)
    rules.check(0, False, 1, [1, 1], 0.0)


def test_jobs_of_several_users_need_the_site_s_word() -> None:
    with pytest.raises(Refused, match="only jobs of one user are on GPU 3 at once"):
        Together().check(3, False, 1, [2], 0.0)
    Together().check(3, True, 1, [2], 0.0)


def test_users_who_have_lost_work_together_are_apart_for_a_time() -> None:
    rules = Together()
    rules.fault([1, 2, 2], 100.0)
    for uid, other in ((1, 2), (2, 1)):
        with pytest.raises(Refused, match="a fault of one has ended both") as said:
            rules.check(0, True, uid, [other], 100.0)
        assert said.value.hint.startswith("submit the job again in 60 minutes")
    rules.check(0, True, 1, [3], 100.0)
    rules.check(0, True, 1, [2], 100.0 + APART_S)
    rules.fault([3, 4], 100.0 + APART_S)
    assert list(rules.until) == [frozenset((3, 4))], "pairs whose time is over are forgotten"


def test_a_fault_of_very_many_users_is_remembered_in_bounds() -> None:
    rules = Together()
    rules.fault(range(1000), 0.0)
    assert len(rules.until) == USERS_MOST * (USERS_MOST - 1) // 2
