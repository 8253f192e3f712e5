"""Jobs that Slurm stops and continues by itself: preemption by QOS, and gang time slices."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.grace import Grace, PatientLeased
from tests.slurm.processes import wait_until
from tests.slurm.test_suspend_gpu import EACH, MIB, Site
from tests.slurm.turns import Job
from tests.support.work_dir import work_dir

LOW = ("--cpus-per-task=64", "--partition=usual", "--qos=low")
HIGH = ("--cpus-per-task=64", "--partition=urgent", "--qos=high")
IN_SLICES = ("--cpus-per-task=64", "--partition=slices")
SHARED = "Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=FORCE:1"
SLICE_S = 5  # the shortest that Slurm takes
LIMITS = '[limits]\nquantum_min = "50ms"\ndrain = "10m"\n'


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Jobs of QOS high preempt those of QOS low."""
    work = work_dir()
    try:
        with EmulatedGpu(work / "gpu") as gpu:
            conf = [
                "SelectTypeParameters=CR_CPU_Memory",
                "PreemptType=preempt/qos",
                "PreemptMode=SUSPEND,GANG",
                f"SchedulerTimeSlice={SLICE_S}",
                f"PartitionName=usual {SHARED} PriorityTier=1",
                f"PartitionName=urgent {SHARED} PriorityTier=2",
                "PartitionName=slices Nodes=ALL MaxTime=INFINITE State=UP OverSubscribe=FORCE:2",
            ]
            grace = Grace(work / "grace-over")
            slurm = PrivateSlurm(
                work / "slurm", env=gpu.env, slurm_conf=conf, slurmd_env=grace.slurmd_env
            )
            slurm.plugin_args += [f"admin_socket={work}/run/admin.sock"]
            with slurm, PatientLeased(work / "leased", work / "run", slurm.env, LIMITS) as leased:
                slurm.run("sacctmgr", "-i", "add", "qos", "low")
                slurm.run("sacctmgr", "-i", "add", "qos", "high", "preempt=low")
                yield Site(slurm, leased, gpu, work, grace)
                grace.end()
    finally:
        shutil.rmtree(work, ignore_errors=True)


def state(site: Site, job: Job) -> str:
    return site.slurm.job(job.number)["JobState"]


def wait_for(site: Site, job: Job, wanted: str) -> None:
    wait_until(f"{job.name} to be {wanted}", lambda: state(site, job) == wanted)


@pytest.mark.parametrize("memory", ["swap", "managed"])
def test_a_job_that_is_preempted_frees_its_gpu_and_goes_on_afterwards(
    site: Site, memory: str
) -> None:
    low = site.submit(f"low-{memory}", memory, 0, *LOW)
    low.gets_on()
    alone = site.free()
    site.grace.begin()
    high = site.submit(f"high-{memory}", memory, 0, *HIGH)
    high.gets_on()
    # The other has as much there; a context is far smaller than that.
    wait_until("its memory to leave", lambda: site.free() > alone - EACH * MIB // 2)
    site.grace.end()
    assert state(site, low) == "SUSPENDED"
    wait_until("it to be stopped", low.is_stopped)
    turns = low.turns()
    high.gets_on()
    assert low.turns() == turns
    site.finish(high)
    low.gets_on()
    site.finish(low)


def test_the_daemon_is_killed_while_a_job_is_preempted(site: Site) -> None:
    low = site.submit("low-killed", "swap", 0, *LOW)
    low.gets_on()
    high = site.submit("high-killed", "swap", 0, *HIGH)
    high.gets_on()
    site.leased.kill()
    site.leased.start()
    high.gets_on()
    assert state(site, low) == "SUSPENDED"
    site.finish(high)
    low.gets_on()
    site.finish(low)


def test_jobs_that_take_slices_of_the_node_both_get_on(site: Site) -> None:
    """Each is stopped and continued by turns; its data is compared in each of its turns."""
    jobs = [site.submit(name, "swap", 0, *IN_SLICES) for name in ("slice-one", "slice-two")]
    for job in jobs:
        wait_for(site, job, "SUSPENDED")
        wait_for(site, job, "RUNNING")
        job.gets_on()
    for job in jobs:
        Path(f"{job.name}.end").touch()
    for job in jobs:
        site.finish(job)
