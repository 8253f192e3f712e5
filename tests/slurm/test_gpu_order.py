"""Jobs on the second GPU of a node, the only one in gres.conf: they lease that one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.conftest import ROOT
from tests.emugpu.server import EmulatedGpu
from tests.slurm import conf, gpus_by_uuid
from tests.slurm.cluster import PrivateSlurm, make_device_file
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.slurm.site import sharing_site
from tests.support.work_dir import work_dir

DEVICES = Path("/sys/fs/cgroup/devices")

SCRIPT = """#!/bin/sh
echo "index: $SLURM_JOB_GPUS"
echo done
exec sleep 600
"""


@dataclass
class Node:
    """Two emulated GPUs, of which Slurm has the second."""

    slurm: PrivateSlurm
    leased: Leased
    work: Path

    def job(self) -> str:
        """What a job that shares a GPU says; it goes on until the end of the test."""
        script, log = self.work / "job.sh", self.work / "log"
        script.write_text(SCRIPT)
        self.slurm.sbatch("--gres=shard:1", "-o", str(log), str(script), cwd=self.work)
        wait_until("its last word", lambda: log.exists() and "done\n" in log.read_text())
        return log.read_text()

    def leases(self) -> set[str]:
        tenants = ask(self.leased.admin_socket, {"op": "status"})["tenants"]
        return {uuid for tenant in tenants for uuid in tenant["gpus"]}


@pytest.fixture
def node(request: pytest.FixtureRequest) -> Iterator[Node]:
    """param: whether Slurm constrains devices."""
    if request.param and not os.access(DEVICES, os.W_OK):
        pytest.skip(f"ConstrainDevices= needs {DEVICES}")
    work = work_dir()
    try:
        files = [work / "dev" / f"gpu{n}" for n in range(2)]
        files[0].parent.mkdir()
        for n, file in enumerate(files):
            make_device_file(file, n)
        with EmulatedGpu(work / "gpu", devices=2) as gpu:
            slurm = PrivateSlurm(
                work / "slurm",
                gpu_files=files[1:],
                env=gpu.env,
                slurm_conf=["TaskPlugin=task/cgroup"] if request.param else [],
                cgroup_conf=["ConstrainDevices=yes"] if request.param else [],
            )
            slurm.plugin_args += [f"admin_socket={work}/run/admin.sock"]
            (work / "out").mkdir()
            with slurm, Leased(work / "leased", work / "run", slurm.env) as leased:
                yield Node(slurm, leased, work / "out")
    finally:
        shutil.rmtree(work, ignore_errors=True)


@pytest.mark.parametrize("node", [True, False], indirect=True, ids=["constrained", "not"])
def test_a_job_leases_the_gpu_that_slurm_gave_it(
    node: Node, request: pytest.FixtureRequest
) -> None:
    constrained = "constrained" in request.node.callspec.id
    said = node.job()
    assert "index: 0\n" in said, "Slurm counts what gres.conf lists"
    log = node.leased.log.read_text()
    (leased,) = node.leases()
    shown = ask(node.leased.admin_socket, {"op": "status"})["devices"]
    assert shown[0]["uuid"] == leased
    # CUDA_VISIBLE_DEVICES=0 is the first of all that a job can open.
    assert (f"GPU 0 of Slurm is {leased} (/dev/nvidia1)" in log) == constrained


SAYS_ITS_GPUS = """
from tests.emugpu.program_api import *
setup()
ok(launch("spin", 1_000_000))
ok(d.cuCtxSynchronize())
say(os.environ["CUDA_VISIBLE_DEVICES"], ok(d.cuDeviceGetCount()))
say(ok(d.cuDeviceGetUuid(0)).bytes.hex())
"""


def test_a_job_leases_the_gpu_that_slurm_names_by_its_uuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conf, "gres_conf", gpus_by_uuid.gres_conf)
    with sharing_site(gpus=2, prepare=gpus_by_uuid.detect) as site:
        program = site.work / "says.py"
        program.write_text(SAYS_ITS_GPUS)
        first = site.slurm.sbatch("--gres=shard:4", "--wrap", "exec sleep 600", cwd=site.work)
        site.wait_for_tenant(first)
        said = site.batch(f"cd {ROOT} && {sys.executable} {program}", "--gres=shard:1").split()
        second = site.devices()[1]
        assert said == [second, "1", second.removeprefix("GPU-").replace("-", "")]
        assert site.slurm.accounting(first + 1, usage=True).usage["gpus"].keys() == {second}
