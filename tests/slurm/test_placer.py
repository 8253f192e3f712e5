"""The placer beside a real slurmctld: jobs with labels get the node where they fit, or wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.placer import PlacedSite, placed_site


@pytest.fixture(scope="module")
def site() -> Iterator[PlacedSite]:
    """Two nodes with one GPU each."""
    with placed_site() as made:
        yield made


def test_an_anti_affinity_pair_is_on_different_gpus(site: PlacedSite) -> None:
    one, two = (site.submit("anti-affinity:server") for _ in range(2))
    assert site.gpu(one) != site.gpu(two)
    third = site.submit("anti-affinity:server")
    site.wait_for_comment(third, "a job with anti-affinity:server is there")
    assert site.waits(third)
    site.cancel(one)
    site.gpu(third)
    assert site.comment(third) == ""
    site.cancel(two, third)


def test_an_affinity_pair_is_on_one_gpu(site: PlacedSite) -> None:
    other = site.submit("request:0.1")
    first, second = (site.submit("affinity:model") for _ in range(2))
    assert site.gpu(first) == site.gpu(second) != site.gpu(other)
    site.cancel(other, first, second)


def test_an_exclusion_job_waits_for_an_idle_gpu_and_says_so(site: PlacedSite) -> None:
    taken = [site.submit("", "-w", node) for node in site.slurm.layout.node_names]
    where = [site.gpu(job) for job in taken]
    alone = site.submit("exclusion:team-a", "--comment=of mine")
    site.wait_for_comment(alone, "a job without exclusion:team-a is there")
    assert site.comment(alone).startswith("of mine [gpu-lease-placer: waits: ")
    site.cancel(taken[1])
    assert site.gpu(alone) == where[1]
    assert site.comment(alone) == "of mine"
    assert not site.slurm.job(alone).get("AdminComment")
    site.cancel(taken[0], alone)


def test_jobs_without_labels_are_not_touched(site: PlacedSite) -> None:
    job = site.submit("tq:5")
    site.gpu(job)
    assert site.slurm.job(job)["ReqNodeList"] == "(null)"
    assert f"job {job}:" not in site.placer.log
    site.cancel(job)


def test_several_gpus_of_a_node() -> None:
    """Slurm itself chooses the first GPU that has room, and the placer knows that."""
    with placed_site(nodes=1, gpus=2) as site:
        never = site.submit("affinity:big", "--gres=shard:5")
        site.wait_for_comment(never, "it can never start: even with no other job there")
        one, two = (site.submit("anti-affinity:server") for _ in range(2))
        assert site.gpu(one)[1] == "0"
        site.wait_for_comment(two, "GPU 1: Slurm would give the job GPU 0 of this node")
        filling = site.submit("", "--gres=shard:3")
        site.gpu(filling)
        assert site.gpu(two)[1] == "1"
        site.cancel(never, one, two, filling)
