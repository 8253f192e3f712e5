"""The simulator against what can be computed by hand."""

from __future__ import annotations

import pytest

from leased.sim.idleness import Pauses
from leased.sim.jobs import GIB, MS, Gpu, Job, S, Setting, Trace
from leased.sim.run import Result, run

ON = Setting(lock="on")
GPU = Gpu(16 * GIB)  # memory moves at 10 GiB/s


def result(*jobs: Job, setting: Setting = ON, gpus: tuple[Gpu, ...] = (GPU,)) -> Result:
    return run(Trace(gpus, jobs), setting)


def job(memory: int, *bursts: tuple[int, int], **other: object) -> Job:
    pairs = tuple((gpu * S, cpu * S) for gpu, cpu in bursts)
    return Job(**{"name": "job", "memory": memory, "bursts": pairs} | other)  # type: ignore[arg-type]


def ends(found: Result) -> list[float]:
    return [job.end / S for job in found.jobs]


def test_one_job_takes_as_long_as_it_says() -> None:
    found = result(job(GIB, (5, 3), (2, 1)))
    assert ends(found) == [11]
    assert (found.longest_wait, found.handoffs, found.moved) == (0, 0, 0)


def test_jobs_that_fit_share_the_time_side_by_side() -> None:
    pair = job(GIB, (10, 0)), job(GIB, (10, 0))
    assert ends(result(*pair, setting=Setting(lock="auto"))) == [20, 20]
    gains = Gpu(16 * GIB, side_by_side=1.25)
    assert ends(result(*pair, setting=Setting(lock="auto"), gpus=(gains,))) == [16, 16]


def test_a_short_job_beside_a_long_one_takes_its_half_of_the_time() -> None:
    found = result(job(GIB, (2, 0)), job(GIB, (10, 0)), setting=Setting(lock="auto"))
    assert ends(found) == [4, 12]


def test_jobs_take_turns_of_a_quantum_where_the_lock_is_on() -> None:
    """Nothing moves: 0 to 3 the first, 3 to 6 the second, 6 to 7 and 7 to 8 the rest."""
    setting = Setting(lock="on", quantum=3 * S)
    found = result(job(GIB, (4, 0)), job(GIB, (4, 0)), setting=setting)
    assert ends(found) == [7, 8]
    assert [job.waited / S for job in found.jobs] == [3, 4]
    assert [job.handoffs for job in found.jobs] == [1, 2]


def test_each_handoff_of_managed_memory_costs_what_has_to_move() -> None:
    """Two of 10 GiB on 16: the first use displaces 4 GiB, as does each later one, at 10 GiB/s.
    The daemon reckons 0.4 s, and 8 s are no stretch of a quantum of 10 s."""
    setting = Setting(lock="on", quantum=10 * S)
    found = result(job(10 * GIB, (20, 0)), job(10 * GIB, (20, 0)), setting=setting)
    # 10 s; 0.4 s and 9.6 s; 0.4 s and 9.6 s; the same; then 0.4 s and 0.4 s; 0.4 s and 0.8 s.
    assert ends(found) == pytest.approx([40.8, 42.0])
    assert found.jobs[0].moved == 4 * (2 * 4 * GIB) // 2
    assert [job.moving / S for job in found.jobs] == pytest.approx([0.8, 1.2])


def test_a_quantum_is_at_least_twenty_times_its_handoff() -> None:
    """A handoff takes 0.4 s, so the quantum is 8 s. Who has ended leaves no memory behind."""
    setting = Setting(lock="on", quantum=1 * S)
    found = result(job(10 * GIB, (9, 0)), job(10 * GIB, (9, 0)), setting=setting)
    # 8 s; 0.4 s and 7.6 s; 0.4 s and 1 s, and it ends; 0.4 s and 1.4 s.
    assert ends(found) == pytest.approx([17.4, 19.2])
    assert found.handoffs == 3


def test_swapped_memory_is_moved_by_the_jobs_and_the_quantum_begins_after_that() -> None:
    setting = Setting(lock="on", quantum=10 * S)
    pair = [job(10 * GIB, (15, 0), swaps=True) for _ in range(2)]
    found = result(*pair, setting=setting)
    assert found.handoffs == 3
    # 10 s; 0.4 s until there is room for the second's new memory, 10 s; 0.4 s and a piece of
    # 25 ms until the first has its own back, 5 s, and it ends; 0.4 s for the second's, 5 s.
    assert ends(found) == pytest.approx([25.825, 31.225], abs=0.002)
    assert sum(job.moved for job in found.jobs) == 4 * 4 * GIB


@pytest.mark.parametrize(("pause", "handoffs"), [(0.3, 1), (3.0, 3)])
def test_a_pause_is_used_by_others_where_it_is_longer_than_a_handoff(
    pause: float, handoffs: int
) -> None:
    """A handoff takes 0.4 s. In the first pause of 3 s the other job has its turn."""
    bursts = ((5 * S, round(pause * S)), (5 * S, 0))
    first = Job("first", 10 * GIB, bursts)
    second = job(10 * GIB, (5, 0), submit=S)
    found = result(first, second, setting=Setting(lock="on", quantum=60 * S))
    assert found.jobs[1].handoffs == 1
    if handoffs == 1:
        assert ends(found) == pytest.approx([10.3, 15.3])
    else:  # it yields after 0.4 s: the second from 5.8 to 10.8, and 0.4 s for the way back
        assert ends(found) == pytest.approx([16.2, 10.8])


def test_a_gang_runs_on_all_of_its_gpus_or_waits() -> None:
    gpus = (GPU, GPU)
    setting = Setting(lock="on", quantum=3 * S)
    gang = job(GIB, (4, 0), gpus=(0, 1))
    single = job(GIB, (4, 0), gpus=(1,))
    assert ends(result(gang, single, setting=setting, gpus=gpus)) == [7, 8]
    other = job(GIB, (4, 0), gpus=(0,))
    assert ends(result(single, other, setting=setting, gpus=gpus)) == [4, 4]


def test_gpus_of_their_own_are_had_one_job_after_the_other() -> None:
    setting = Setting(exclusive=True)
    jobs = [job(10 * GIB, (2, 2)), job(10 * GIB, (3, 0), submit=S)]
    found = result(*jobs, setting=setting)
    assert ends(found) == [4, 7]
    assert found.jobs[1].waited == 3 * S
    assert found.makespan == 7 * S
    assert found.moved == 0


def test_memory_that_does_not_fit_side_by_side_is_paged_all_the_time() -> None:
    """Of 20 GiB a fifth is away. In a second of work 25 GiB are touched, so 5 GiB come: 0.5 s,
    for each of the two in turn."""
    pair = [job(10 * GIB, (10, 0), touches_bytes_s=25.0 * GIB) for _ in range(2)]
    found = result(*pair, setting=Setting(lock="off"))
    assert ends(found) == pytest.approx([30, 30])
    assert found.moved == pytest.approx(2 * 2 * 50 * GIB, rel=0.1)


def test_work_in_flight_is_finished_before_the_gpu_changes_hands() -> None:
    setting = Setting(lock="on", quantum=3 * S)
    found = result(job(GIB, (4, 0), drain=MS * 500), job(GIB, (3, 0)), setting=setting)
    assert ends(found) == [7, 6.5]


def test_a_job_that_checks_rarely_whether_it_is_idle_yields_late() -> None:
    """As nvshare's client: at 5 s it computes, at 10 s it has been idle since 6."""
    looks = job(GIB, (6, 20), idle_check=5 * S)
    found = result(looks, job(GIB, (1, 0)), setting=Setting(lock="on"))
    assert ends(found) == [26, 16]


def test_pauses_that_were_long_are_not_waited_out_again() -> None:
    pauses = Pauses()
    assert pauses.enough_ns(400 * MS) == 400 * MS
    pauses.note(3 * S, 400 * MS)
    assert pauses.enough_ns(400 * MS) == 16 * MS
    for _ in range(8):
        pauses.note(20 * MS, 400 * MS)
    assert pauses.enough_ns(400 * MS) == 32 * MS
    assert pauses.enough_ns(10 * MS) == 10 * MS
