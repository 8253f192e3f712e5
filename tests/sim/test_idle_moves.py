"""The idle-GPU policy: jobs that take turns move apart when another GPU becomes free."""

from __future__ import annotations

from leased.sim.jobs import GIB, Gpu, Job, S, Setting, Trace
from leased.sim.run import Simulation

H200 = Gpu(141 * GIB, link_bytes_s=50.0 * GIB)
WORKS, FREE_AT, APART_S = 300, 120, 5


def pair_and(*others: Job) -> tuple[Job, ...]:
    both = [Job(f"job {n}", 90 * GIB, ((WORKS * S, 0),), swaps=True) for n in (1, 2)]
    return (*both, *others)


def simulation(*jobs: Job, moves: bool = True) -> Simulation:
    return Simulation(Trace((H200, H200), jobs), Setting(moves=moves))


def test_two_jobs_of_90_of_141_gib_both_run_5_s_after_the_second_gpu_is_free() -> None:
    """It is free at FREE_AT, when the job that has all of it ends."""
    there = Job("first there", 120 * GIB, ((FREE_AT * S, 0),), (1,), swaps=True)
    run = simulation(*pair_and(there))
    seen: list[set[int]] = []
    for second in range(FREE_AT + APART_S, FREE_AT + APART_S + 100):
        run.timeline.at(second * S, lambda: seen.append(set(run.nodes[0].processors.works)))
    found = run.run()
    assert len(run.idle_moves[0].moved) == 1
    assert FREE_AT < run.idle_moves[0].moved[0].at / S < FREE_AT + APART_S
    assert seen == 100 * [{0, 1}]
    apart = [job.end for job in found.jobs[:2]]
    together = [job.end for job in simulation(*pair_and(there), moves=False).run().jobs[:2]]
    assert max(apart) < 0.75 * max(together)


def test_none_goes_to_and_fro_however_jobs_come_and_go() -> None:
    """On the second GPU a large job comes and goes, so the pair has one GPU or two by turns."""
    guests = [
        Job(f"guest {n}", 120 * GIB, ((20 * S, 0),), (1,), submit=n * 50 * S, swaps=True)
        for n in range(10)
    ]
    run = simulation(*pair_and(*guests))
    run.run()
    movers = [moved.who for moved in run.idle_moves[0].moved]
    assert movers
    assert len(movers) == len(set(movers))


def test_jobs_that_soon_end_stay_where_they_are() -> None:
    short = [Job(f"job {n}", 90 * GIB, ((10 * S, 0),), swaps=True) for n in (1, 2)]
    run = simulation(*short)
    run.run()
    assert not run.idle_moves[0].moved


def test_jobs_that_pause_move_apart_too() -> None:
    """Each waits for the other for most of the time, though never for long without a pause."""
    pauses = ((5 * S, 2 * S),) * 60
    pair = [Job(f"job {n}", 90 * GIB, pauses, swaps=True) for n in (1, 2)]
    apart, together = simulation(*pair), simulation(*pair, moves=False)
    assert apart.run().makespan < 0.75 * together.run().makespan
    assert len(apart.idle_moves[0].moved) == 1


def test_a_job_that_always_works_is_not_disturbed() -> None:
    """There is room beside it, and nothing would be gained: three jobs for two GPUs."""
    works = Job("works", 40 * GIB, ((WORKS * S, 0),), (1,), swaps=True)
    run = simulation(*pair_and(works))
    assert run.run().jobs[2].end <= WORKS * S
    assert all(moved.at >= WORKS * S for moved in run.idle_moves[0].moved)


def test_three_jobs_of_two_gpus_of_which_one_is_small() -> None:
    """The small one stays beside one of the others, so neither of these takes turns any more."""
    run = simulation(*pair_and(Job("small", 10 * GIB, ((WORKS * S, 0),), swaps=True)))
    run.run()
    assert [moved.who for moved in run.idle_moves[0].moved if moved.at < WORKS * S] == [1]


def test_where_one_cannot_move_the_other_one_does() -> None:
    """A smaller job with managed memory, and one with two GPUs."""
    gpus, long = (H200,) * 3, ((WORKS * S, 0),)
    stays = [Job("managed", 80 * GIB, long), Job("gang", 80 * GIB, long, (0, 1), swaps=True)]
    for other in stays:
        pair = (other, Job("job", 90 * GIB, long, swaps=True))
        run = Simulation(Trace(gpus, pair), Setting(moves=True))
        run.run()
        assert [moved.who for moved in run.idle_moves[0].moved] == [1]
