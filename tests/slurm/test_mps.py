"""Whole jobs on a GPU that is shared by MPS."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from tests.conftest import ROOT
from tests.docs import documents
from tests.emugpu.mps_control import install
from tests.emugpu.server import EmulatedGpu
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.programs import SET_UP
from tests.support.work_dir import work_dir

SHOWN = documents.shown("docs/user.md", "#SBATCH --gpu-share=space:mps")
# Says what it was given, computes until a file is there, and says how its last call ended.
WORKS = (
    SET_UP
    + """
import pathlib
say(*(os.environ.get(name) for name in (
    "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "CUDA_VISIBLE_DEVICES")))
say(os.getpid())
result = d.CUresult.CUDA_SUCCESS
while result == d.CUresult.CUDA_SUCCESS and not pathlib.Path(sys.argv[1]).exists():
    spin(5_000_000)
    (result,) = d.cuCtxSynchronize()
if sys.argv[2:]:
    values = ((1 << 50, 1000, 1), (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32))
    d.cuLaunchKernel(kernel["fill"], 1, 1, 1, 1, 1, 1, 0, 0, values, 0)
    (result,) = d.cuCtxSynchronize()
say(result.name)
"""
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """GPU 0 is shared by MPS, GPU 1 is not."""
    place = work_dir()
    conf = f'mps_control = "{install(place)}"\n[device.0]\nspace = "mps"\n'
    pids: list[int] = []
    try:
        with sharing_site(gpus=2, leased_conf=conf) as made:
            yield made
            pids += (int(file.read_text()) for file in made.leased.run_dir.glob("mps/*/*.pid"))
    finally:
        for pid in pids:  # it outlives the daemon
            os.kill(pid, signal.SIGTERM)
        shutil.rmtree(place, ignore_errors=True)


def submit(site: Site, name: str, options: str, *more: str) -> int:
    program = site.work / "works.py"
    program.write_text(WORKS)
    return site.slurm.sbatch(
        *("--gres=shard:1", f"--gpu-share={options}", "-o", str(log(site, name))),
        *(
            "--wrap",
            f"cd {ROOT} && exec {sys.executable} {program} {end(site, name)} {' '.join(more)}",
        ),
        cwd=site.work,
    )


def end(site: Site, name: str) -> Path:
    return site.work / f"{name}.end"


def log(site: Site, name: str) -> Path:
    return site.work / f"{name}.log"


def said(site: Site, name: str) -> list[str]:
    """Nothing, as long as the job has not begun."""
    return log(site, name).read_text().splitlines() if log(site, name).exists() else []


def channels(site: Site, job: int) -> Any:
    return next(t for t in site.status() if t["job_id"] == job)["channels"]


def mps(site: Site) -> Any:
    return ask(site.leased.admin_socket, {"op": "status"})["devices"][0]["mps"]


def test_two_jobs_share_a_server_and_a_fault_of_one_is_counted(site: Site) -> None:
    jobs = {
        "quiet": submit(site, "quiet", SHOWN.removeprefix("#SBATCH --gpu-share=")),
        "guilty": submit(site, "guilty", "space:mps", "fault"),
    }
    uuid = site.devices()[0]
    for name, percent in (("quiet", "30"), ("guilty", "100")):
        site.wait_for_tenant(jobs[name])
        wait_until(f"{name} to compute", lambda: len(said(site, name)) > 1)  # noqa: B023
        pipes = site.leased.run_dir / "mps" / uuid
        assert said(site, name)[0] == f"{pipes} {percent} {uuid}"
    for job in jobs.values():
        wait_until("its channels to be told", lambda: channels(site, job)["why"])  # noqa: B023
        assert "an MPS server has them" in channels(site, job)["why"]
    end(site, "guilty").touch()
    for name, job in jobs.items():
        assert site.slurm.wait(job) == "COMPLETED"
        assert said(site, name)[-1] == "CUDA_ERROR_ILLEGAL_ADDRESS"
    wait_until("the fault to be counted", lambda: mps(site)["faults"] == 1)
    site.node_is_idle()


def test_scancel_leaves_no_work_behind(site: Site) -> None:
    job = submit(site, "cancelled", "space:mps")
    wait_until("it to compute", lambda: kernels(site) > 2)
    site.slurm.run("scancel", str(job))
    assert site.slurm.wait(job) == "CANCELLED"
    wait_until("its end to be seen", lambda: not process(site)["alive"])
    assert process(site)["cut_short"] == 0
    site.node_is_idle()


def process(site: Site) -> dict[str, int]:
    """What the emulated GPU says of the job that is cancelled; nothing before it begins."""
    pid = int([*said(site, "cancelled"), "0", "0"][1])
    found = EmulatedGpu(site.work.parent / "gpu").stats()["processes"]
    return next((dict(one) for one in found if one["pid"] == pid), {"kernels": 0, "alive": 1})


def kernels(site: Site) -> int:
    return process(site)["kernels"]


def test_a_step_may_have_another_part(site: Site) -> None:
    shown = "printenv CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
    said = site.batch(
        f"{shown}; srun --gpu-share=sm:50% {shown}", "--gres=shard:1", "--gpu-share=sm:25%"
    )
    assert said.split() == ["25", "50"]


def test_what_a_job_under_mps_submits_has_nothing_of_it(site: Site) -> None:
    ours = {"CUDA_MPS_PIPE_DIRECTORY": "/run/x", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25"}
    for env, stays in ((ours | {"GPU_LEASE_MPS": "/run/x"}, {}), (ours, ours)):
        done = site.run("--gres=gpu:1", "env", env=env)
        shown = dict(line.split("=", 1) for line in done.stdout.splitlines() if "_MPS" in line)
        assert shown == stays, done.stderr


def test_a_job_that_cannot_have_its_mode_is_told(site: Site) -> None:
    """The jobs before have left GPU 0, where a shard goes first."""
    done = site.run("--gres=shard:1", "--gpu-share=space:time", "true")
    assert done.returncode == 1
    assert "space:time, but GPU 0 is shared by MPS; leave space out" in done.stderr
    site.node_is_idle()
