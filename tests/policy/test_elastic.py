"""Shares of a device's time: what each job gets of it, in simulated time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leased.core.events import Opened
from leased.core.policy import Had
from leased.core.tenant_changes import tenant_of
from leased.policy.elastic import Elastic
from tests.core.scenario import Job, Poke
from tests.core.world import S
from tests.policy.watched import Watched, greedy, shares
from tests.support.long import long
from tests.support.together import zip_strict


@pytest.mark.parametrize("quantum", [100, *long([30])])
@pytest.mark.parametrize("requests", [(0.1, 0.9), (0.3, 0.7), (0.2, 0.3, 0.5), (0.02, 0.4, 0.58)])
def test_each_gets_what_it_requests(requests: tuple[float, ...], quantum: int) -> None:
    world = Watched(shares(*requests, quantum=quantum), 40)
    world.check(5, 40, dict(enumerate(requests)))


@pytest.mark.parametrize("drains", [(20, 0), (0, 20), (45, 1)])
def test_long_kernels_are_compensated(drains: tuple[int, int]) -> None:
    """Each turn ends by so many ms too late."""
    jobs = [replace(job, drain=ms) for job, ms in zip_strict(shares(0.3, 0.7), drains)]
    Watched(jobs, 40).check(5, 40, {0: 0.3, 1: 0.7})


def test_short_pauses_cost_nothing_of_what_is_requested() -> None:
    """In each of them another job gets the device for a turn."""
    Watched([greedy(0.3), greedy(0.7, busy=50, pause=3)], 40).check(5, 40, {0: 0.3, 1: 0.7})


@pytest.mark.parametrize("limit", [0.05, 0.3, 0.6, 0.99])
def test_a_limit_holds_for_a_job_that_is_alone(limit: float) -> None:
    Watched([greedy(limit=limit)], 40).check(0, 40, {0: limit})


def test_time_that_nobody_requests_is_divided_evenly() -> None:
    Watched(shares(0.3, 0.0, 0.0), 40).check(5, 40, dict.fromkeys(range(3), 1 / 3))
    Watched(shares(0.6, 0.0, 0.0), 40).check(5, 40, {0: 0.6, 1: 0.2, 2: 0.2})


@pytest.mark.parametrize("drains", [(45, 1, 1), (20, 0, 0)])
def test_long_kernels_gain_nothing_where_all_have_what_they_request(
    drains: tuple[int, ...],
) -> None:
    """Who has had least is next, and not who has had the fewest turns."""
    Watched([greedy(0.01, drain=ms) for ms in drains], 30).check(
        5, 30, dict.fromkeys(range(3), 1 / 3)
    )


def test_others_have_the_time_that_a_limited_job_leaves() -> None:
    jobs = [greedy(0.1, 0.2), greedy(), greedy()]
    Watched(jobs, 40).check(5, 40, {0: 0.2, 1: 0.4, 2: 0.4})


def test_a_job_with_a_limit_has_no_longer_turns_than_those_that_wait_for_it() -> None:
    """Its turns would end by its limit alone, after a second and more."""
    jobs = [greedy(limit=0.9, quantum=30), greedy(quantum=30), greedy(limit=0.05, quantum=30)]
    jobs += [greedy()]
    even = 0.95 / 3
    Watched(jobs, 30).check(5, 30, {0: even, 1: even, 2: 0.05, 3: even})


@pytest.mark.parametrize(
    "jobs",
    [
        [greedy(0.1), greedy(drain=0), greedy(0.87, quantum=30, drain=5)],
        [*shares(0.1, 0.89, quantum=30, drain=5), greedy(), greedy()],
        [greedy(0.4), greedy(quantum=30), greedy(0.35, quantum=30)],
    ],
)
def test_a_job_whose_limit_is_its_request_has_that(jobs: list[Job]) -> None:
    """It is owed its request also for the time in which its limit keeps it from its GPU."""
    limited, *others = jobs
    world = Watched([replace(limited, limit=limited.request), *others], 30)
    for first in range(5, 20):
        got = world.got(first, first + 10)
        assert got[0] == pytest.approx(limited.request, abs=0.012), f"from second {first} on"


def test_a_job_whose_limit_is_its_request_has_that_also_where_its_gpu_idles() -> None:
    """All the others are at their limits from time to time, so nobody has the GPU then."""
    jobs = [greedy(0.6, 0.6, drain=5), greedy(0.04, 0.04, drain=0)]
    jobs += [greedy(limit=0.1), greedy(0.1, 0.2)]
    Watched(jobs, 30).check(5, 30, {0: 0.6, 1: 0.04, 2: 0.1, 3: 0.2}, 0.008)


def test_a_turn_that_was_owed_makes_no_other_forget_what_it_has_not_had() -> None:
    """Also where it ends in several parts, and the last of them was not owed any more."""
    jobs = [greedy(0.6, 0.6), greedy(0.12, quantum=30, drain=0), greedy(0.11, drain=5)]
    jobs += [greedy(0.14, quantum=30, drain=0)]
    Watched(jobs, 30).check(5, 30, {0: 0.6, 1: 0.13, 2: 0.13, 3: 0.14}, 0.01)


def test_three_jobs_arrive_one_after_the_other() -> None:
    """KubeShare's Figure 6."""
    jobs = [greedy(0.3, 0.6), greedy(0.4, 0.6, opens=40_000), greedy(0.3, 0.5, opens=80_000)]
    world = Watched(jobs, 200, [Poke(120_000, "close", 2), Poke(160_000, "close", 1)])
    world.check(0, 40, {0: 0.6})
    world.check(43, 80, {0: 0.5, 1: 0.5})
    world.check(83, 120, {0: 0.3, 1: 0.4, 2: 0.3})
    world.check(123, 160, {0: 0.5, 1: 0.5})
    world.check(163, 200, {0: 0.6})


class Moment:
    """What a policy may know of a node where no memory moves and nobody holds."""

    now = 2

    def handoff_ns(self, _: object) -> int:
        return 0

    def held_ns(self, _: object) -> int:
        return 0

    def competitors(self, _: object) -> int:
        return 1


def test_a_waiter_is_not_asked_again_at_once() -> None:
    """What it is owed grows when the holder is charged, and that may be long after."""
    policy, waiter = Elastic(), tenant_of(Opened(1, ("d",), "auto", S // 10, request=0.4))
    policy.opened(waiter)
    policy.charged(1, Had(("d",), 1, [1], [1]), 1)  # so it is due 1.5 ns from any time on
    policy.order(Moment(), waiter)
    again = policy.wake_at(Moment(), waiter)
    assert again is not None
    assert again >= 1_000_000
