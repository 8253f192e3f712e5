"""A job that is ending has its GPU until it is gone."""

from __future__ import annotations

from dataclasses import replace

from leased.placer.ending import LastGiven
from leased.placer.model import View
from leased.slurm.queue_json import QueuedJob
from tests.placer.scenes import HOLD, T0, Slurm, job, node, running


def ending(one: QueuedJob) -> QueuedJob:
    """As Slurm says it: without its GPUs."""
    return replace(one, state="COMPLETING", given={})


def view(*jobs: QueuedJob) -> View:
    return View(T0, jobs, ())


def test_it_has_what_it_had() -> None:
    runs = running(job(9), "n1", 1)
    known = LastGiven()
    assert known.added(view(runs)) == view(runs)
    for _ in range(2):
        (found,) = known.added(view(ending(runs))).jobs
        assert found.given == {1: 1}
    assert known.added(view()).jobs == ()
    (found,) = known.added(view(ending(runs))).jobs
    assert found.given == {}, "it is another one with that number"


def test_nothing_is_made_up_for_jobs_that_are_not_known_or_not_ending() -> None:
    known = LastGiven()
    known.added(view(running(job(9), "n1")))
    others = (ending(running(job(8), "n1")), ending(running(job(9), "n2")), job(9))
    assert known.added(view(*others)) == view(*others)


def test_a_job_that_has_waited_is_not_let_start_before_the_gpu_is_free() -> None:
    """Otherwise it would be put off again, and others would get the GPU."""
    slurm = Slurm([node("n1")])
    slurm.add(running(job(9), "n1"), job(1, "exclusion:a"))
    slurm.go(3)
    slurm.jobs["9"] = ending(slurm.jobs["9"])
    slurm.go(HOLD)
    assert [update.job for update in slurm.made if update.node] == []
    slurm.end("9")
    slurm.go(2)
    assert slurm.where("1") == ("n1", 0)
