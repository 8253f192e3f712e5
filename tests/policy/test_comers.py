"""Who comes, or comes back, takes nothing from the others for the time in which it wanted nothing,
and they have what they request in every second."""

from __future__ import annotations

import pytest

from tests.core.scenario import Job
from tests.policy.watched import Watched, greedy

SECONDS = 40
COMES = 20
ERROR = 0.06  # of a second; who has waited for a turn of 100 ms gets it in the next


def each_second(jobs: list[Job]) -> list[dict[int, float]]:
    """What each job had of the device in each second."""
    world = Watched(jobs, SECONDS)
    return [world.got(n, n + 1) for n in range(SECONDS)]


@pytest.mark.parametrize("request_", [0.1, 0.5, 0.9])
def test_a_new_tenant_is_owed_nothing_for_the_time_before(request_: float) -> None:
    """The other one was alone, and so was charged long ago."""
    got = each_second([greedy(1 - request_), greedy(request_, opens=COMES * 1000 + 50)])
    for second in range(COMES + 1, SECONDS):
        assert got[second] == pytest.approx({0: 1 - request_, 1: request_}, abs=ERROR), second


def test_a_tenant_that_comes_back_leaves_the_other_its_request() -> None:
    """It was alone in the pauses of the one that comes back, and has its own part all the same."""
    got = each_second([greedy(0.1), greedy(0.9, busy=2000, pause=3000)])
    for second in range(2, SECONDS):
        assert got[second][0] >= 0.1 - ERROR, second
