"""Whole online and offline jobs: which class they get, and who goes first where memory does not
fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leased.api.client import ask
from leased.cli import show_classes
from tests.slurm.processes import wait_until
from tests.slurm.test_swap import CONFIG, MIB, Site, swapping_site

PARTITIONS = ["PartitionName=serve Nodes=ALL", "PartitionName=batch Nodes=ALL"]
CLASSES = (
    '[classes]\nonline = ["partition:serve"]\noffline = ["partition:batch"]\n'
    'may_online = ["qos:none-of-them"]\nonline_memory = "90%"\n'
)
LONG = "memory:swap,tq:5m"  # nobody's turn ends for another's sake while the test runs
BIG = 180  # MiB, of 256


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with swapping_site(CONFIG + CLASSES, PARTITIONS, devices=1) as made:
        yield made


def status(site: Site) -> Any:
    return ask(site.leased.admin_socket, {"op": "status"})


def tenant(site: Site, job: int) -> Any:
    return next((one for one in status(site)["tenants"] if one["job_id"] == job), None)


def handoffs(site: Site, job: int) -> int:
    return sum(used["handoffs"] for used in tenant(site, job)["gpus"].values())


def test_an_online_job_goes_first_and_the_offline_one_goes_on_with_its_bits(site: Site) -> None:
    """Its quantum would last for longer than the test. Its memory leaves, comes back, and is
    right."""
    offline = site.compute(
        "offline", BIG, until="online", options=("-p", "batch", f"--gpu-share={LONG}")
    )
    site.settled(offline, BIG)
    before = site.bytes_out()
    online = site.compute("online", BIG, options=("-p", "serve", f"--gpu-share={LONG}"))
    wait_until("both to be there", lambda: tenant(site, online.job_id) is not None)
    said = show_classes.lines(status(site))
    assert f"job {offline.job_id} is offline, job {online.job_id} is online" in said[0]
    site.used(online)
    assert site.bytes_out() - before >= (2 * BIG - 256) * MIB
    used = site.used(offline)
    assert sum(one["handoffs"] for one in used.values()) >= 1
    site.all_is_free()


def test_an_offline_job_waits_until_an_online_one_is_over_or_idle(site: Site) -> None:
    online = site.compute("first", BIG, until="end", options=("-p", "serve", f"--gpu-share={LONG}"))
    site.settled(online, BIG)
    offline = site.compute("waits", BIG, options=("-p", "batch", "--gpu-share=memory:swap,tq:50ms"))
    wait_until("it to wait", lambda: (t := tenant(site, offline.job_id)) and t["state"] == "waits")
    (device,) = status(site)["devices"]
    assert device["quantum_left_s"] is None, "the lease of the online job has no end"
    (site.work / "end.0").touch()
    site.used(online)
    site.used(offline)
    site.all_is_free()


def test_who_may_be_online(site: Site) -> None:
    job, log = site.sbatch("not", "true", "--gpu-share=class:online", "--mem=400M")
    assert site.slurm.wait(job) == "FAILED"
    told = log.read_text()
    assert "class:online is not allowed for this job on this site" in told
    assert "partition:serve" in told
    done = site.slurm.run(
        "srun", "--gres=shard:1", "--gpu-share=class:offline,request:0.3", "true", check=False
    )
    assert "a job with a class has no share of the GPU's time" in done.stderr
    site.all_is_free()


def test_users_see_the_class_of_their_job(site: Site) -> None:
    job, log = site.sbatch(
        "mine", f"exec {sys.executable} -m leased.cli.ctl mine", "-p", "serve", "--mem=400M"
    )
    site.slurm.wait(job)
    assert "tq:30, class:online, " in log.read_text()
    site.all_is_free()
