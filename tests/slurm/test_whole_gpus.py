"""GPUs that jobs have whole, and shards, on one node: what a job has whole is never leased.

With Cores= in gres.conf, or a type as the shipped one has: before 23.11.5 Slurm gives out GPUs
without either whole while shards of them are in use, which `gpu-leasectl check` finds (gres-whole).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from leased.api.client import ask
from tests.slurm.placer import gpu_number
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site

GPUS, SHARDS_PER_GPU = 2, 4


@pytest.fixture(scope="module", params=["cores", "type"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    cores, kind = ("Cores=0-63", "") if request.param == "cores" else ("", "h200")
    with sharing_site(gpus=GPUS, gpu_fields=cores, gpu_type=kind) as made:
        yield made


@pytest.fixture(autouse=True)
def no_jobs(site: Site) -> Iterator[None]:
    yield
    site.slurm.run("scancel", "--user=root", "--full")
    wait_until("all jobs to end", lambda: site.slurm.run("squeue", "-h").stdout == "")
    wait_until("all tenants to go", lambda: site.tenants() == [])


def begin(site: Site, gres: str) -> int:
    """A job that stays."""
    return site.slurm.sbatch(
        f"--gres={gres}", "-o", "/dev/null", "--wrap=exec sleep 600", cwd=site.work
    )


def state(site: Site, job: int) -> str:
    return site.slurm.job(job)["JobState"]


def running(site: Site, gres: str) -> int:
    job = begin(site, gres)
    wait_until(f"job {job} ({gres}) to run", lambda: state(site, job) == "RUNNING")
    return job


def leased(site: Site) -> dict[int, set[str]]:
    """The GPUs of each tenant."""
    tenants = ask(site.leased.admin_socket, {"op": "status"})["tenants"]
    return {tenant["job_id"]: set(tenant["gpus"]) for tenant in tenants}


def index_of(site: Site, job: int) -> int:
    """The GPU of a job, as Slurm says it."""
    shown = site.slurm.run("scontrol", "show", "job", "-d", str(job)).stdout
    (said,) = re.findall(r"GRES=[\w:]+:\d+\(([^)]+)\)", shown)
    return int(gpu_number(said))


def test_shards_go_to_the_gpu_that_nobody_has_whole(site: Site) -> None:
    whole = running(site, "gpu:1")
    sharing = [running(site, "shard:1") for _ in range(SHARDS_PER_GPU)]
    for job in sharing:
        site.wait_for_tenant(job)
    other = site.devices()[1 - index_of(site, whole)]
    assert leased(site) == {job: {other} for job in sharing}
    # All shards of the other GPU are in use, and those of the first are none.
    waits = begin(site, "shard:1")
    site.slurm.run("scancel", str(sharing[0]))
    wait_until("it to have the place", lambda: waits in leased(site))
    assert leased(site)[waits] == {other}
    assert whole not in leased(site)


def test_a_gpu_with_a_shard_in_use_is_not_given_out_whole(site: Site) -> None:
    sharing = running(site, "shard:1")
    site.wait_for_tenant(sharing)
    whole = running(site, "gpu:1")
    other = index_of(site, whole)
    assert other != index_of(site, sharing)
    waits = begin(site, "gpu:1")
    site.slurm.run("scancel", str(whole))
    wait_until("the next to have the other GPU", lambda: state(site, waits) == "RUNNING")
    assert index_of(site, waits) == other
    assert set(leased(site)) == {sharing}


def test_a_gpu_is_leased_again_when_nobody_has_it_whole(site: Site) -> None:
    whole = running(site, f"gpu:{GPUS}")
    waits = begin(site, "shard:1")
    assert leased(site) == {}
    site.slurm.run("scancel", str(whole))
    site.wait_for_tenant(waits)
