"""Whole online and offline jobs: which class they get, and who goes first where memory does not
fit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leased.api.client import ask
from leased.cli import show_jobs
from tests.conftest import ROOT
from tests.emugpu.server import EmulatedGpu
from tests.slurm.processes import wait_until
from tests.slurm.site import Site as SharingSite
from tests.slurm.site import sharing_site
from tests.slurm.test_swap import CONFIG, MIB, Site, swapping_site
from tests.support.programs import SET_UP

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
    said = show_jobs.classes(status(site))
    assert f"job {offline.job_id} is offline, job {online.job_id} is online" in said[0]
    site.used(online)
    assert site.bytes_out() - before >= (2 * BIG - 256) * MIB
    used = site.used(offline)
    assert sum(one["handoffs"] for one in used.values()) >= 1
    row = site.slurm.run("sacct", "-n", "-P", "-j", str(offline.job_id), "-o", "SystemComment%999")
    assert '"class":"offline"' in row.stdout
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


# -- a GPU that is not well -----------------------------------------------------------------

HURRIED = tuple(
    f"leased.classes.health.{pause}"
    for pause in ("INIT_S=1", "ILL_S=1", "OVER_S=1", "WELL_S=2", "FIRST_S=20")
)
# Kernels of 5 ms until a file is there.
WORKS = (
    SET_UP
    + """
import pathlib
while not pathlib.Path(sys.argv[1]).exists():
    ok(spin(5_000_000)); ok(d.cuCtxSynchronize())
"""
)


def test_an_offline_job_is_requeued_where_the_gpus_clock_is_low_and_runs_to_its_end_later() -> None:
    with sharing_site(leased_conf='[classes]\nunhealthy = "evict"\n', hurried=HURRIED) as site:
        gpu = EmulatedGpu(site.work.parent / "gpu")
        program, end = site.work / "works.py", site.work / "end"
        program.write_text(WORKS)
        job = site.slurm.sbatch(
            *("--gres=shard:1", "--gpu-share=class:offline", "--requeue", "--comment=mine"),
            *("-o", str(site.work / "log"), "--open-mode=append"),
            *("--wrap", f"cd {ROOT} && exec {sys.executable} {program} {end}"),
            cwd=site.work,
        )
        site.wait_for_tenant(job)
        gpu.nvml({0: "slow"})
        wait_until("it to be requeued", lambda: site.slurm.job(job)["Restarts"] == "1")
        said = site.slurm.run("scontrol", "show", "job", str(job)).stdout
        assert "Comment=mine [gpu-lease: GPU 0 was over its limits, its clock is low]" in said
        refused = site.slurm.run(
            "srun", "--gres=shard:1", "--gpu-share=class:offline", "true", check=False
        )
        assert (
            "GPU 0 takes no new offline jobs: it is overlimit, its clock is low" in refused.stderr
        )
        gpu.nvml({})
        end.touch()
        wait_until("the GPU to be well", lambda: health(site) == "healthy")
        assert site.slurm.wait(job) == "COMPLETED"
        assert site.slurm.job(job)["Restarts"] == "1"


def health(site: SharingSite) -> str:
    (device,) = ask(site.leased.admin_socket, {"op": "status"})["devices"]
    return str(device["offline_health"]["state"])
