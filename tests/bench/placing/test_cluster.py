"""A simulated cluster: jobs are placed, wait for room, and have what they request."""

from __future__ import annotations

from typing import Any

import pytest

from leased.base.errors import Refused
from leased.placement import kubeshare
from leased.placement.api import Request
from leased.sim.jobs import GIB, MS, Gpu, Job, S
from tests.bench.placing import oversubscribed
from tests.bench.placing.cluster import Arrival, Cluster, Outcome, Place

GPU = Gpu(16 * GIB)
SECONDS = 10


def arrival(share: float, gib: int = 4, submit_s: float = 0.0, **labels: Any) -> Arrival:
    """A job of inference: it computes for this part of every second of ten."""
    bursts = [(round(share * S), round((1 - share) * S))] * SECONDS
    job = Job(
        *(f"{share}", gib * GIB, bursts),
        submit=round(submit_s * S),
        quantum=100 * MS,
        swaps=True,
        request=share,
        paced=True,
    )
    return Arrival(job, Request(share, gib * GIB, **labels))


def run(
    *arrivals: Arrival, gpus: int = 1, nodes: int = 1, place: Place = kubeshare.place
) -> Outcome:
    return Cluster(nodes, [GPU] * gpus, arrivals, place, "elastic").run()


def seconds(outcome: Outcome) -> list[int]:
    return [round(ns / S) for ns in outcome.turnarounds]


def test_jobs_that_fit_a_gpu_together_take_as_long_as_alone() -> None:
    found = run(arrival(0.5), arrival(0.3), arrival(0.2), gpus=4)
    assert seconds(found) == [SECONDS] * 3
    assert found.mean_active == pytest.approx(1, abs=0.1)


def test_a_job_waits_until_its_share_is_free() -> None:
    assert seconds(run(arrival(0.6), arrival(0.5))) == [SECONDS, 2 * SECONDS]
    assert seconds(run(arrival(0.6), arrival(0.5), nodes=2)) == [SECONDS] * 2


def test_a_later_job_that_fits_overtakes_one_that_waits() -> None:
    found = run(arrival(0.6), arrival(0.5, submit_s=1), arrival(0.4, submit_s=2))
    assert seconds(found) == [10, 19, 10]


def test_labels_hold_in_the_cluster() -> None:
    apart = [arrival(0.2, anti_affinity="n") for _ in range(3)]
    assert seconds(run(*apart, gpus=2)) == [10, 10, 20]
    alone = arrival(0.2, exclusion="x"), arrival(0.2)
    assert seconds(run(*alone)) == [10, 20]


def test_memory_that_does_not_fit_waits_in_kubeshare_and_moves_here() -> None:
    jobs = arrival(0.2, 10), arrival(0.2, 10)
    assert seconds(run(*jobs)) == [10, 20]
    ours = run(*jobs, place=oversubscribed.place)
    assert max(seconds(ours)) < 15
    assert ours.moved > 0


def test_a_job_that_fits_no_gpu_is_named() -> None:
    with pytest.raises(Refused, match="1 jobs fit no GPU"):
        run(arrival(0.2, 17), arrival(0.2), place=oversubscribed.place)


def test_two_runs_are_the_same() -> None:
    jobs = [arrival(0.1 + n / 20, submit_s=n / 3) for n in range(8)]
    assert run(*jobs, gpus=2) == run(*jobs, gpus=2)
