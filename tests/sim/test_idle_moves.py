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
        run.timeline.at(second * S, lambda: seen.append(set(run.node.processors.works)))
    found = run.run()
    assert len(run.idle_moves.moved) == 1
    assert FREE_AT < run.idle_moves.moved[0].at / S < FREE_AT + APART_S
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
    movers = [moved.who for moved in run.idle_moves.moved]
    assert movers
    assert len(movers) == len(set(movers))


def test_jobs_that_soon_end_stay_where_they_are() -> None:
    short = [Job(f"job {n}", 90 * GIB, ((10 * S, 0),), swaps=True) for n in (1, 2)]
    run = simulation(*short)
    run.run()
    assert not run.idle_moves.moved
