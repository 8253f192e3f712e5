"""Jobs that Slurm has suspended, on a private Slurm: nobody waits for them, nothing ends them."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from leased.api.client import ask
from tests.conftest import ROOT
from tests.emugpu.server import EmulatedGpu
from tests.slurm.cluster import PrivateSlurm
from tests.slurm.grace import Grace, PatientLeased
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import SET_UP
from tests.support.work_dir import work_dir

# Two pieces of work of `ms` each on so many MiB; the second begins when the file `go` is there.
PROGRAM = (
    SET_UP
    + """
import pathlib, time
name, mib, ms = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
p = ok(d.cuMemAlloc(mib << 20)); ok(d.cuMemsetD8(p, 7, mib << 20)); ok(d.cuCtxSynchronize())
ok(spin(ms * 1_000_000))
pathlib.Path(name + ".began").touch()
while not os.path.exists(name + ".go"):
    time.sleep(0.05)
ok(spin(ms * 1_000_000)); ok(d.cuCtxSynchronize())
pathlib.Path(name + ".done").touch()
"""
)


@dataclass
class Site:
    """A cluster of one node. The daemon is the test's, with the limits that it needs."""

    slurm: PrivateSlurm
    work: Path
    grace: Grace

    def submit(self, name: str, memory: str, mib: int, ms: int = 1) -> int:
        """A job that runs PROGRAM; returns when it has its first work behind it."""
        program = self.work / "program.py"
        program.write_text(PROGRAM)
        script = self.work / f"{name}.sh"
        words = f"{sys.executable} {program} {self.work / name} {mib} {ms}"
        script.write_text(f"#!/bin/sh\ncd {ROOT} || exit 9\nexec {words}\n")
        return self.slurm.sbatch(
            *("--gres=shard:1", "--mem=400M", f"--gpu-share=tq:200ms,lock:on,memory:{memory}"),
            *("-o", str(self.work / f"{name}.log"), str(script)),
            cwd=self.work,
        )

    def until(self, name: str) -> None:
        wait_until(name, (self.work / name).exists, timeout=60)

    def suspend(self, job: int) -> None:
        self.slurm.run("scontrol", "suspend", str(job))
        wait_until("it to be suspended", lambda: self.state(job) == "SUSPENDED")

    def state(self, job: int) -> str:
        return self.slurm.job(job)["JobState"]

    def finish(self, name: str, job: int) -> None:
        (self.work / f"{name}.go").touch()
        assert self.slurm.wait(job) == "COMPLETED", (self.work / f"{name}.log").read_text()
        assert (self.work / f"{name}.done").exists()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    work = work_dir()
    with EmulatedGpu(work / "gpu") as gpu:
        grace = Grace(work / "grace-over")
        slurm = PrivateSlurm(
            work / "slurm",
            env=gpu.env,
            slurm_conf=["SelectTypeParameters=CR_CPU_Memory"],
            slurmd_env=grace.slurmd_env,
        )
        slurm.plugin_args += [f"admin_socket={work}/run/admin.sock"]
        with slurm:
            yield Site(slurm, work, grace)
            grace.end()
    shutil.rmtree(work, ignore_errors=True)


def daemon(site: Site, limits: str, kind: type[Leased] = Leased) -> Leased:
    extra = f'[limits]\nquantum_min = "50ms"\n{limits}\n'
    return kind(site.work / "leased", site.work / "run", site.slurm.env, extra)


def jobs(leased: Leased) -> list[int]:
    """Those that the daemon knows."""
    return [t["job_id"] for t in ask(leased.admin_socket, {"op": "status"})["tenants"]]


def has_left(leased: Leased, job: int) -> bool:
    """It is parked, and nothing of it is on a GPU."""
    tenants = ask(leased.admin_socket, {"op": "status"})["tenants"]
    found = next(t for t in tenants if t["job_id"] == job)
    return found["state"] == "parked" and not any(found["resident_bytes"].values())


@pytest.mark.parametrize("memory", ["managed", "swap"])
def test_the_next_job_runs_beside_a_suspended_one(site: Site, memory: str) -> None:
    with daemon(site, 'drain = "10m"', PatientLeased) as leased:
        first = site.submit(f"first-{memory}", memory, 160)
        site.until(f"first-{memory}.began")
        site.grace.begin()
        site.suspend(first)
        wait_until("its memory to leave", lambda: has_left(leased, first))
        site.grace.end()
        second = site.submit(f"second-{memory}", memory, 40)
        site.finish(f"second-{memory}", second)
        assert has_left(leased, first)
        site.slurm.run("scontrol", "resume", str(first))
        site.finish(f"first-{memory}", first)


def test_a_suspended_job_that_is_cancelled_leaves_nothing_behind(site: Site) -> None:
    """It is stopped before its memory could leave, which is free when it has ended."""
    with daemon(site, 'drain = "10m"') as leased:
        first = site.submit("cancelled", "swap", 160)
        site.until("cancelled.began")
        site.suspend(first)
        second = site.submit("large", "swap", 160)
        site.slurm.run("scancel", str(first))
        assert site.slurm.wait(first) == "CANCELLED"
        site.finish("large", second)
        wait_until("its tenant to be gone", lambda: first not in jobs(leased))


@pytest.fixture
def uncontrolled(site: Site) -> Iterator[None]:
    """Work cannot be stopped in mid-kernel, so it is waited for."""
    gpu = EmulatedGpu(site.work / "gpu")
    gpu.fail(0, "controls-unknown")
    yield
    gpu.fail(0, "controls-work")


@pytest.mark.usefixtures("uncontrolled")
def test_a_suspended_job_that_overruns_is_left_alone(site: Site) -> None:
    """Its kernel is long, so it does not give the GPU back; it could not if it would."""
    with daemon(site, 'drain = "300ms"\noverrun = "cancel"') as leased:
        first = site.submit("first", "managed", 16, ms=6000)
        site.until("first.began")
        site.suspend(first)
        second = site.submit("second", "managed", 16)
        site.finish("second", second)
        log = leased.log.read_text()
        assert f"job {first} (uid" in log
        assert "the next in the queue gets its GPUs" in log
        assert (
            f"job {first} has overrun while it is stopped or suspended: it is not ended for that"
            in log
        )
        assert site.state(first) == "SUSPENDED"
        site.slurm.run("scontrol", "resume", str(first))
        site.finish("first", first)


@pytest.mark.usefixtures("uncontrolled")
def test_a_job_that_hangs_is_still_ended(site: Site) -> None:
    with daemon(site, 'drain = "300ms"\noverrun = "cancel"'):
        first = site.submit("hangs", "managed", 16, ms=60_000)
        site.until("hangs.began")
        second = site.submit("third", "managed", 16)
        assert site.slurm.wait(first) in ("FAILED", "CANCELLED")  # by the signal, or after it
        site.finish("third", second)
