"""Jobs with shares run side by side where that keeps every share, and else by turns."""

from __future__ import annotations

import functools
import random
from dataclasses import replace

import pytest

from tests.core.scenario import Job, Poke
from tests.core.world import S
from tests.policy.watched import ERROR, WINDOW_S, greedy
from tests.policy.worked import Worked
from tests.support.long import long


def auto(*jobs: Job) -> list[Job]:
    """They may run side by side, and finish at once what they have submitted."""
    return [replace(job, lock="auto", drain=0) for job in jobs]


def test_jobs_run_side_by_side_where_an_even_division_gives_all_their_share() -> None:
    world = Worked(auto(greedy(0.3, 0.6), greedy(0.4, 0.6)), 30)
    assert world.side_by_side(4, 30) == 1
    world.check(4, 30, {0: 0.5, 1: 0.5})


def test_jobs_without_a_share_run_beside_them() -> None:
    world = Worked(auto(greedy(0.3), greedy(), greedy()), 30)
    assert set(world.beside[8:]) == {3}


@pytest.mark.parametrize("requests", [(0.2, 0.8), (0.1, 0.5, 0.4)])
def test_jobs_take_turns_where_it_would_not(requests: tuple[float, ...]) -> None:
    world = Worked(auto(*map(greedy, requests)), 30)
    assert world.side_by_side(0, 30) == 0
    world.check(5, 30, dict(enumerate(requests)))


def test_jobs_that_leave_room_run_side_by_side_whatever_they_request() -> None:
    jobs = auto(greedy(0.7, busy=10, pause=40), greedy(0.3, busy=10, pause=30))
    world = Worked(jobs, 30)
    assert max(world.beside[8:]) == 2
    assert world.changes == 1


@pytest.mark.parametrize(("busy", "pause"), [(10**9, 1), (3000, 2000), (40, 40), (700, 700)])
@pytest.mark.parametrize("limit", [0.1, 0.3])
def test_a_limit_holds_side_by_side(limit: float, busy: int, pause: int) -> None:
    """Also where the other one leaves all of the GPU to it for a while."""
    world = Worked(auto(greedy(limit=limit), greedy(0.2, busy=busy, pause=pause)), 40)
    assert world.side_by_side(4, 40) > 0
    for first in range(5, 40 - WINDOW_S):
        assert world.got(first, first + WINDOW_S)[0] <= limit + ERROR, f"from second {first} on"
    assert world.got(5, 40)[0] >= limit - ERROR


def test_a_limit_holds_for_a_job_that_was_side_by_side_and_is_alone() -> None:
    world = Worked(auto(greedy(limit=0.6), greedy(0.2)), 40, [Poke(10_000, "close", 1)])
    world.check(11, 40, {0: 0.6, 1: 0.0})


def test_a_job_that_gets_less_than_its_request_has_turns_at_once() -> None:
    """The driver gives it a quarter. It has at least its request in every window, and the GPU does
    not go back and forth: each time that jobs take turns they do so for twice as long."""
    world = Worked(auto(greedy(0.4), greedy(0.4)), 150, pull=lambda job, _: (1.0, 3.0)[job])
    for first in range(150 - WINDOW_S):
        assert world.got(first, first + WINDOW_S)[0] >= 0.4 - ERROR, f"from second {first} on"
    assert 0 < world.side_by_side(0, 150) < 0.1
    assert world.changes <= 12


def test_a_driver_that_divides_otherwise_later_is_noticed() -> None:
    def pull(job: int, now: int) -> float:
        return 3.0 if job == 1 and now > 30 * S else 1.0

    world = Worked(auto(greedy(0.4), greedy(0.4)), 60, pull=pull)
    assert world.side_by_side(5, 30) == 1
    for first in range(20, 60 - WINDOW_S):
        assert world.got(first, first + WINDOW_S)[0] >= 0.4 - ERROR, f"from second {first} on"
    assert world.side_by_side(33, 60) < 0.3


def test_jobs_take_turns_where_nothing_is_measured() -> None:
    world = Worked(auto(greedy(0.4), greedy(0.4)), 30, says=lambda _: False)
    assert world.side_by_side(0, 30) == 0


def test_jobs_take_turns_once_nothing_is_measured_any_more() -> None:
    world = Worked(auto(greedy(0.4), greedy(0.4)), 40, says=lambda at: at < 20 * S)
    assert world.side_by_side(5, 20) == 1
    assert world.side_by_side(23, 40) == 0


def test_jobs_take_turns_while_their_memory_does_not_fit() -> None:
    jobs = [replace(job, size=40) for job in auto(greedy(0.4), greedy(0.4))]
    world = Worked(jobs, 40, [Poke(15_000, "size", 1, 90)])
    assert world.side_by_side(5, 15) == 1
    assert world.side_by_side(17, 40) == 0


def test_a_job_that_comes_is_given_its_request() -> None:
    """An even division gives it a third."""
    jobs = auto(greedy(0.3), greedy(0.2), greedy(0.5, opens=15_000))
    world = Worked(jobs, 40)
    assert world.side_by_side(5, 15) == 1
    for first in range(16, 40 - WINDOW_S):
        got = world.got(first, first + WINDOW_S)
        assert all(got[n] >= jobs[n].request - ERROR for n in range(3)), f"from second {first} on"


# -- whatever the driver does -------------------------------------------------------------


def drawn(r: random.Random) -> list[Job]:
    jobs, left = [], 1.0
    for _ in range(r.randint(2, 5)):
        request = round(r.choice((0.0, r.uniform(0, left))), 2)
        left -= request
        limit = round(r.choice((1.0, 1.0, r.uniform(max(request, 0.05), 1.0))), 2)
        busy, pause = r.choice(((10**9, 1), (10**9, 1), (10**9, 1), (20, 60), (1500, 700)))
        jobs.append(greedy(request, limit, busy=busy, pause=pause, quantum=r.choice((30, 100))))
    return auto(*jobs)


def pulled(seed: int, job: int, now: int) -> float:
    """Another division every seven seconds."""
    return random.Random(f"{seed} {job} {now // (7 * S)}").choice((1.0, 1.0, 1.5, 4.0))


@pytest.mark.parametrize("seed", [*range(4), *long(range(4, 30))])
def test_shares_hold_whatever_the_driver_does(seed: int) -> None:
    jobs, seconds = drawn(random.Random(seed)), 60
    world = Worked(jobs, seconds, pull=functools.partial(pulled, seed))
    for first in range(3, seconds - WINDOW_S):
        got = world.got(first, first + WINDOW_S)
        for n, job in enumerate(jobs):
            told = f"seed {seed}: job {n} of {jobs} has {got.get(n)} from second {first} on"
            assert got.get(n, 0.0) <= job.limit + ERROR, told
            if job.busy == 10**9:
                assert got.get(n, 0.0) >= job.request - ERROR, told
    assert world.changes <= 14, f"seed {seed}: {jobs} changed {world.changes} times"
