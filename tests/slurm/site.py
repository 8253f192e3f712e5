"""A cluster with gpu-leased on the emulated GPU: what tests of the whole share."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from leased.api.client import ask
from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import PLUGIN, PrivateSlurm
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.work_dir import work_dir


@dataclass
class Site:
    """A cluster with gpu-leased on its nodes. work: a directory that every user may write to."""

    slurm: PrivateSlurm
    leased: Leased
    work: Path

    def run(self, *srun: str, **options: object) -> subprocess.CompletedProcess[str]:
        return self.slurm.run("srun", *srun, check=False, **options)  # type: ignore[arg-type]

    def node_works(self) -> None:
        """The node was not drained, and the next job runs on it."""
        done = self.run("--gres=shard:1", "true")
        assert done.returncode == 0, done.stderr
        self.node_is_idle()

    def node_is_idle(self) -> None:
        wait_until("the node to be idle", lambda: self.slurm.node_state() == "idle")

    def nodes_are_idle(self) -> None:
        """Wait until all nodes are; TimeoutError says what they are instead."""
        with contextlib.suppress(TimeoutError):
            wait_until("all nodes to be idle", self._all_idle, timeout=180, step=0.2)
        if not self._all_idle():
            said = self.slurm.run("sinfo", "-h", "-N", "-o", "%N %T %E").stdout
            raise TimeoutError(f"the nodes are not idle: {said}")

    def _all_idle(self) -> bool:
        said = self.slurm.run("sinfo", "-h", "-N", "-o", "%T", check=False).stdout.split()
        return set(said) == {"idle"}

    def status(self) -> list[dict[str, Any]]:
        """The tenants, as `gpu-leasectl status` has them."""
        return list(ask(self.leased.admin_socket, {"op": "status"})["tenants"])

    def tenants(self) -> list[int]:
        return [tenant["job_id"] for tenant in self.status()]

    def wait_for_tenant(self, job: int) -> None:
        wait_until(f"job {job} to be a tenant", lambda: job in self.tenants())

    def requeue(self, job: int) -> None:
        """Requeue a running job, and let it start soon.

        Not at once: slurmd refuses a credential of the second in which it has ended the job.
        """
        self.slurm.run("scontrol", "requeue", str(job))
        wait_until("the job to wait again", lambda: self.slurm.job(job)["JobState"] == "PENDING")
        wait_until("its tenant to be gone", lambda: job not in self.tenants())
        self.slurm.run("scontrol", "update", f"jobid={job}", "starttime=now+2")

    def devices(self) -> list[str]:
        """The UUIDs of the node's GPUs, by index."""
        answer = ask(self.leased.admin_socket, {"op": "status"})
        return [device["uuid"] for device in answer["devices"]]

    def batch(self, script: str, *arguments: str, **options: Any) -> str:
        """Run a script as a batch job to its end; what it wrote."""
        log = Path(tempfile.mktemp(suffix=".log", dir=self.work))
        job = self.slurm.sbatch(
            *arguments, "-o", str(log), "--wrap", script, cwd=self.work, **options
        )
        self.slurm.wait(job)
        return log.read_text() if log.exists() else ""


@contextmanager
def sharing_site(
    *,
    gpus: int = 1,
    nodes: int = 1,
    plugin_args: Sequence[str] = (),
    slurm_conf: Sequence[str] = (),
    plugin: Path = PLUGIN,
    hurried: Sequence[str] = (),
    gpu_fields: str = "",
    gpu_type: str = "",
    shards_per_gpu: int = 4,
    leased_conf: str = "",
    model: str = "emu-h200-small",
    prepare: Callable[[PrivateSlurm], object] = lambda _: None,
) -> Iterator[Site]:
    """The daemon is one for all nodes, which are one machine. hurried: its pauses to be shorter.

    leased_conf: further tables of its configuration. model: of the emulated GPUs. prepare: called
    before Slurm starts.
    """
    work = work_dir()
    work.chmod(0o755)
    try:
        with EmulatedGpu(work / "gpu", model, devices=gpus) as gpu:
            slurm = PrivateSlurm(
                work / "slurm",
                gpus=gpus,
                nodes=nodes,
                plugin=plugin,
                slurm_conf=slurm_conf,
                gpu_fields=gpu_fields,
                gpu_type=gpu_type,
                shards_per_gpu=shards_per_gpu,
                env=gpu.env,
            )
            slurm.plugin_args += [f"admin_socket={work}/run/admin.sock", *plugin_args]
            prepare(slurm)
            daemon = Leased(work / "leased", work / "run", slurm.env, leased_conf, hurried=hurried)
            with slurm, daemon as leased:
                (work / "out").mkdir()
                (work / "out").chmod(0o777)
                yield Site(slurm, leased, work / "out")
    finally:
        shutil.rmtree(work, ignore_errors=True)
