"""The placer beside a real slurmctld: jobs with labels get the node where they fit, or wait."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.slurm.placer import PlacedSite, placed_site
from tests.slurm.processes import wait_until


@pytest.fixture(scope="module")
def shared_site() -> Iterator[PlacedSite]:
    """Two nodes with one GPU each."""
    with placed_site() as made:
        yield made


@pytest.fixture
def site(shared_site: PlacedSite) -> Iterator[PlacedSite]:
    """Without a job, also where the test before has failed."""
    yield shared_site
    shared_site.slurm.cancel_all()


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


def test_a_job_that_depends_on_another_takes_no_place_until_that_has_ended(
    site: PlacedSite,
) -> None:
    before = site.submit("")
    after = site.submit("exclusion:d", f"--dependency=afterany:{before}")
    one, two = (site.submit("anti-affinity:d") for _ in range(2))
    site.gpu(one)
    site.gpu(two)
    assert f"job {after}: it fits" not in site.placer.log
    site.cancel(before)
    site.wait_for_comment(after, "a job without exclusion:d is there")
    site.cancel(one, two)
    site.gpu(after)
    site.cancel(after)


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


def test_a_user_s_hold_and_begin_time_stay(site: PlacedSite) -> None:
    held = site.submit("affinity:h", "--hold")
    later = site.submit("affinity:h", "--begin=now+1hour")
    other = site.submit("affinity:h")
    site.gpu(other)
    assert site.waits(held)
    assert site.slurm.job(held)["Priority"] == "0"
    assert site.waits(later)
    site.slurm.run("scontrol", "release", str(held))
    assert site.gpu(held) == site.gpu(other)
    site.cancel(held, later, other)


def test_tasks_of_an_array_keep_apart(site: PlacedSite) -> None:
    array = site.submit("anti-affinity:task", "--array=1-3")
    assert site.gpu(f"{array}_1") != site.gpu(f"{array}_2")
    site.wait_for_comment(f"{array}_3", "a job with anti-affinity:task is there")
    site.slurm.run("scancel", f"{array}_1")
    site.gpu(f"{array}_3")
    site.cancel(array)


def test_a_requeued_job_is_placed_again(site: PlacedSite) -> None:
    job = site.submit("anti-affinity:again")
    node, _ = site.gpu(job)
    rival = site.submit("exclusion:rival", "-w", node)
    site.wait_for_comment(rival, "a job without exclusion:rival is there")
    site.slurm.run("scontrol", "requeue", str(job))
    assert site.gpu(rival)[0] == node
    # Slurm lets a requeued job wait until the credential that it had has expired.
    site.slurm.run("scontrol", "update", f"jobid={job}", "starttime=now+3")
    assert site.gpu(job)[0] != node
    site.cancel(job, rival)


def test_a_killed_placer_is_followed_by_one_that_knows_its_jobs(site: PlacedSite) -> None:
    there = site.submit("exclusion:first")
    node, _ = site.gpu(there)
    waits = site.submit("anti-affinity:second", "-w", node)
    site.wait_for_comment(waits, "only jobs with exclusion:first may be there")
    site.placer.kill()
    assert site.waits(waits)
    site.placer.start()
    other = site.submit("request:0.1", "-w", node)
    site.wait_for_comment(other, "only jobs with exclusion:first may be there")
    site.cancel(there)
    assert site.gpu(waits)[0] == site.gpu(other)[0] == node
    site.cancel(waits, other)


def test_a_job_is_put_off_from_the_moment_that_the_service_is_up(site: PlacedSite) -> None:
    taken = [site.submit("", "-w", node) for node in site.slurm.layout.node_names]
    for job in taken:
        site.gpu(job)
    site.placer.stop()
    site.placer.start()
    alone = site.submit("exclusion:up")
    assert site.slurm.job(alone)["AdminComment"].startswith("[gpu-lease-placer")
    site.cancel(*taken, alone)


def test_a_job_begins_by_itself_when_the_placer_is_gone() -> None:
    with placed_site(nodes=1, hold="10s") as site:
        taken = site.submit("")
        site.gpu(taken)
        waits = site.submit("exclusion:alone", "--comment=mine")
        site.wait_for_comment(waits, "a job without exclusion:alone is there")
        site.placer.kill()
        site.gpu(waits)
        # It is recognised, and rid of what the placer wrote, by the next one.
        assert "[gpu-lease-placer" in site.comment(waits)
        site.placer.start()
        wait_until("its comment to be its user's", lambda: site.comment(waits) == "mine")
        assert not site.slurm.job(waits).get("AdminComment")


def test_a_stopped_placer_gives_jobs_back() -> None:
    soon = ["leased.placer.decide.GRACE_S=2"]  # nobody takes its jobs over
    with placed_site(nodes=1, hold="60m", hurried=soon) as site:
        taken = site.submit("")
        site.gpu(taken)
        waits = site.submit("exclusion:alone", "--comment=mine")
        held = site.submit("affinity:h", "--hold")
        site.wait_for_comment(waits, "a job without exclusion:alone is there")
        site.placer.stop()
        assert site.comment(waits) == "mine"
        assert not site.slurm.job(waits).get("AdminComment")
        site.gpu(waits)
        assert site.slurm.job(held)["Priority"] == "0"
        # Nobody is put off now.
        at_once = site.submit("exclusion:other")
        site.gpu(at_once)


def test_a_user_writes_what_it_likes_into_its_job(site: PlacedSite) -> None:
    """Names and comments are data: they come back as they were, and change no other job."""
    odd = "a;touch /tmp/x `id` $(id) \"'\n[gpu-lease-placer 0 9 affinity:z] starttime=now"
    taken = [site.submit("", "-w", node) for node in site.slurm.layout.node_names]
    for job in taken:
        site.gpu(job)
    job = site.submit(
        "exclusion:odd", f"--comment={odd}", "-J", "starttime=now jobid=1", user="nobody"
    )
    wait_until(
        "its reason", lambda: "a job without exclusion:odd is there" in raw_comment(site, job)
    )
    denied = site.slurm.run(
        "scontrol", "update", f"jobid={job}", "admincomment=x", user="nobody", check=False
    )
    assert denied.returncode != 0
    site.cancel(taken[0])
    site.gpu(job)
    assert raw_comment(site, job) == odd
    site.cancel(taken[1], job)


def raw_comment(site: PlacedSite, job: int) -> str:
    found = json.loads(site.slurm.run("squeue", "--json").stdout)["jobs"]
    return next(str(one["comment"]) for one in found if one["job_id"] == job)
