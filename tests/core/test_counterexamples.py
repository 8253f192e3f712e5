"""Scenarios in which the adversary once found a rule broken, made as small as could be."""

from __future__ import annotations

import pytest

from tests.core.adversary import fault_of, run
from tests.core.class_mixes import classed_scenario, half_classed
from tests.core.scenario import Job, Poke, Scenario

# A gang connects GPUs, and one of them gets another policy: what stood before a waiter in the
# line was another tenant by what changed just then, and nobody had what was free.
RELOADED = {
    "one of the gang holds": Scenario(
        *(2, 100),
        (
            Job((0,), quantum=3000, size=5, busy=5000),
            Job((0,), lock="off", quantum=3000, swaps=True, size=5),
            Job((0, 1), lock="off", quantum=3000, swaps=True, size=5, busy=5000, pause=5000),
        ),
        (Poke(at=70102, what="policy", who=0, amount=12),),
    ),
    "a job becomes a gang": Scenario(
        *(2, 1000),
        (
            Job((1,), size=45),
            Job((0,), quantum=30000, swaps=True, size=45, busy=5000, pause=500, drain=12386),
            Job((0,), lock="auto", quantum=30000, swaps=True, size=30, busy=5000, drain=18185),
        ),
        (
            Poke(at=14534, what="widen", who=1, amount=33),
            Poke(at=15660, what="policy", who=0, amount=24),
        ),
    ),
    "elsewhere": Scenario(
        *(8, 1000),
        (
            Job((0, 1), quantum=3000, busy=5000, pause=5000),
            Job((6,), "on", 30000, True, 1, 50, busy=5000, pause=5000, drain=15313, speed=50),
            Job((0, 1, 2, 3, 4, 5, 7), swaps=True, busy=5000, pause=5000, delay=50, speed=50),
        ),
        (
            Poke(at=6308, what="widen", who=0, amount=70),
            Poke(at=8930, what="policy", who=3, amount=55),
        ),
    ),
}

# Who says that it has more than fits, and that it cannot move, keeps out who swaps, as if it had
# so much: a judge that counted only what is so took the device for one that idles.
FALSE_MEMORY = Scenario(
    *(2, 4000),
    (
        Job((0,), swaps=True, size=60, fixed=30),
        Job((0,), swaps=True, size=5, busy=5000, pause=20000, drain=17622, speed=50),
    ),
    (Poke(at=665, what="lie", who=1, amount=1240703533),),
)


@pytest.mark.parametrize("policy_name", ["fcfs", "fair"])
def test_a_tenant_that_lies_about_its_memory_is_believed(policy_name: str) -> None:
    assert fault_of(FALSE_MEMORY, policy_name) is None


@pytest.mark.parametrize("policy_name", ["fcfs", "fair"])
@pytest.mark.parametrize("name", RELOADED)
def test_there_is_one_order_where_policies_meet(name: str, policy_name: str) -> None:
    assert fault_of(RELOADED[name], policy_name) is None


# Its kernel hangs, and nobody waits for its GPU: a parked job may take its time to drain, so its
# limit says nothing of that time. A judge that did not know that found it broken.
HANGS_WHILE_PARKED = Scenario(
    *(3, 1000),
    (Job((2,), quantum=30, size=30, request=0.1, limit=0.5),),
    (
        Poke(at=1244, what="hang", who=0, amount=52),
        Poke(at=54523, what="restart", who=0),
        Poke(at=57878, what="park", who=0, amount=51),
    ),
)


def test_a_parked_job_that_hinders_nobody_may_take_its_time() -> None:
    assert fault_of(HANGS_WHILE_PARKED) is None


# A process with memory that cannot move is stopped, and not known any more after a restart. Beside
# it there is no room for the online job, which went first again and again all the same.
NO_ROOM_WHILE_STOPPED = Scenario(
    *(1, 1000),
    (
        Job((0,), quantum=100, swaps=True, size=90, job_class="online"),
        Job((0,), quantum=100, size=20, fixed=30, job_class="offline"),
        Job((0,), swaps=True, size=20, busy=200, pause=1000, drain=0, job_class="offline"),
    ),
    (
        Poke(at=14538, what="stop", who=1, amount=3),
        Poke(at=56592, what="restart", who=0),
    ),
)


@pytest.mark.parametrize("policy_name", ["fcfs", "fair"])
def test_an_online_job_for_which_there_is_no_room_lets_others_work(policy_name: str) -> None:
    assert fault_of(NO_ROOM_WHILE_STOPPED, policy_name) is None


def test_an_offline_job_fills_no_gap_before_an_online_one() -> None:
    """Beside an online gang that waited for another GPU two offline jobs were granted by turns,
    each to make way at once, and the decision had no end."""
    assert run(910000119, "fcfs", classed_scenario).fault is None


@pytest.mark.parametrize("policy_name", ["fcfs", "fair", "elastic"])
def test_an_offline_job_waits_for_no_online_one_beside_which_it_may_run(policy_name: str) -> None:
    """An online gang waited for its other GPU, and who was in the way of the offline job was a job
    without a class, for whom it may fill a gap."""
    scenario = Scenario(
        *(2, 100),
        (
            Job((1,), quantum=30, size=5, request=0.3),
            Job((0, 1), quantum=30, size=5, limit=0.5),
            Job((0, 1), lock="auto", quantum=30, size=20, job_class="online"),
            Job((0,), lock="auto", quantum=100, size=45, job_class="offline"),
        ),
    )
    assert fault_of(scenario, policy_name) is None


@pytest.mark.parametrize("policy_name", ["fcfs", "elastic"])
def test_what_is_on_its_way_to_the_gpu_leaves_too_if_it_is_to_leave(policy_name: str) -> None:
    """Of memory that a job restored before its turn nothing was there yet when it was to leave, so
    the job was told nothing. It came, was taken for memory that does not leave, and crowded out all
    others for ever."""
    assert run(706827961, policy_name, half_classed).fault is None


def test_memory_that_a_job_hides_is_no_room_for_others() -> None:
    scenario = Scenario(
        *(1, 4000),
        (
            Job((0,), swaps=True, size=90),
            Job((0,), quantum=100, swaps=True, size=60, fixed=5),
        ),
        (Poke(at=52107, what="lie", who=0, amount=1516101648),),
    )
    assert fault_of(scenario, "elastic") is None


BESIDE_ONLINE = {
    # While that computes there is no bound for the offline one. A judge that began to count at the
    # last event before the end found ten minutes too long.
    "the online one ends after ten minutes": Scenario(
        *(1, 4000),
        (
            Job((0,), size=1, job_class="offline"),
            Job((0,), quantum=100, size=1, busy=600_000, job_class="online"),
        ),
    ),
    # Nobody can know that it stands still, so the offline one waits for it as if it worked.
    "the online one is stopped": Scenario(
        *(1, 4000),
        (Job((0,), job_class="online"), Job((0,), job_class="offline")),
        (Poke(at=200, what="stop", who=0), Poke(at=1000, what="size", who=1, amount=5)),
    ),
    # So it does for one that stopped before its turn came, and has not taken what it was granted.
    "the online one is stopped while it waits": Scenario(
        *(1, 1000),
        (
            Job((0,), quantum=10_000, size=30, job_class="online"),
            Job((0,), quantum=30_000, size=5, drain=9868, job_class="offline"),
        ),
        (Poke(at=19_151, what="stop", who=0),),
    ),
    # Jobs that drain for long took d0 and d1 by turns, so the overdue gang had neither both nor d2,
    # which is kept for it: a judge that did not know it found that d2 idles.
    "an overdue gang waits for its other devices": Scenario(
        *(3, 4000),
        (
            Job((0,), quantum=30_000, size=20, drain=16_954, job_class="online"),
            Job((2,), quantum=10_000, job_class="offline"),
            Job((0, 1, 2), quantum=100, size=5),
            Job((1,), quantum=30_000, size=20, job_class="online"),
            Job((1,), "auto", 100, True, 60, busy=1000, pause=5000, drain=11_331),
        ),
    ),
    # The job without a class was overdue after each of its short quanta, before the gang had both
    # of its devices at once; it went before the gang each time, which waited for ever.
    "an overdue one is in the way of an online gang": Scenario(
        *(7, 1000),
        (
            Job((3, 6), quantum=30_000, size=5, job_class="online"),
            Job((5, 6), quantum=100, size=90, drain=16_644),
            Job((0, 1, 3), "auto", quantum=30_000, size=20, busy=5000, job_class="online"),
            Job((5,), quantum=100, size=90, drain=12_351, job_class="offline"),
        ),
    ),
    # It is to take its turn like others, but two others that never idle went first each time.
    "an online one finds no room": Scenario(
        *(1, 4000),
        (
            Job((0,), swaps=True, size=90, job_class="online"),
            Job((0,), size=20, fixed=30, job_class="offline"),
            Job((0,), quantum=3000, size=1, busy=600_000, job_class="online"),
            Job((0,), quantum=3000, size=1, busy=600_000, job_class="online"),
        ),
        (Poke(at=14_538, what="stop", who=1), Poke(at=56_592, what="restart", who=0)),
    ),
}


@pytest.mark.parametrize("policy_name", ["fcfs", "fair"])
@pytest.mark.parametrize("name", BESIDE_ONLINE)
def test_beside_online_jobs_each_waits_as_long_as_it_is_told(name: str, policy_name: str) -> None:
    assert fault_of(BESIDE_ONLINE[name], policy_name) is None
