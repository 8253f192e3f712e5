"""A session that Slurm has adopted into a job, as pam_slurm_adopt does it: a process in the
cgroup of the job's extern step, with an environment of its own."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.slurm import site as sites
from tests.slurm.processes import wait_until
from tests.slurm.site import sharing_site
from tests.support.machine import FREEZER, freezer_required
from tests.support.programs import SET_UP, line, tell

PROFILE = ROOT / "packaging" / "profile.d" / "gpu-lease.sh"
COMPUTES = SET_UP + "say(spin(1000)[0].name); ok(d.cuCtxSynchronize()); sys.stdin.readline()"


class Site(sites.Site):
    """A cluster with cgroups and extern steps, whose site ends strays at once."""

    def job(self) -> tuple[int, Path]:
        """A job that sleeps, and the cgroup of its extern step."""
        job = self.slurm.sbatch(
            "--gres=shard:1", "-o", f"{self.work}/log", "--wrap", "exec sleep 600", cwd=self.work
        )
        wait_until("the job to be known", lambda: job in self.tenants())
        (place,) = FREEZER.glob(f"slurm*/uid_*/job_{job}/step_extern")
        # The daemon knows the job by its extern step, which begins before the other.
        wait_until("the batch step to begin", (place.parent / "step_batch").exists)
        return job, place

    def session(self, place: Path, script: str) -> subprocess.Popen[str]:
        """A shell in the step, with the environment that sshd would give."""
        (self.work / "gpu-leasectl").write_text(
            f"#!/bin/sh\ncd {ROOT} && exec {sys.executable} -m leased.cli.ctl"
            f' --config {self.leased.config} "$@"\n'
        )
        (self.work / "gpu-leasectl").chmod(0o755)
        bare = {n: v for n, v in self.slurm.env.items() if n not in ("LD_PRELOAD", "SLURM_CONF")}
        session = subprocess.Popen(
            ["sh", "-c", f"read go; {script}"],
            env=bare | {"PATH": f"{self.work}:{os.environ['PATH']}"},
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        (place / "cgroup.procs").write_text(str(session.pid))
        tell(session)
        return session


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    freezer_required()
    conf = ["ProctrackType=proctrack/cgroup", "PrologFlags=Contain"]
    ends = '[strays]\naction = "end"\ngrace = "1ms"\nallow = []\n'
    with sharing_site(slurm_conf=conf, leased_conf=ends) as made:
        yield Site(made.slurm, made.leased, made.work)


def test_programs_of_an_ssh_session_are_the_jobs(site: Site) -> None:
    job, place = site.job()
    program = shlex.join([sys.executable, "-c", COMPUTES])
    session = site.session(place, f". {PROFILE}; gpu-leasectl mine --json; exec {program}")
    assert f'"job_id": {job}' in line(session)
    assert line(session) == "CUDA_SUCCESS"
    assert [t["clients"] for t in site.status() if t["job_id"] == job] == [1]
    tell(session)
    session.communicate(timeout=60)
    site.slurm.run("scancel", str(job))
    wait_until("the end of the job", lambda: job not in site.tenants())


def test_a_session_without_a_lease_does_not_end_the_job(site: Site) -> None:
    job, place = site.job()
    session = site.session(place, shlex.join(["exec", sys.executable, "-c", COMPUTES]))
    assert line(session) == "CUDA_SUCCESS"

    def named() -> bool:
        return f"job {job}.extern " in site.leased.log.read_text()

    wait_until("the stray to be named", named, timeout=60)
    # A stray of the batch step comes later, is found later, and ends the job: so much time
    # has passed for this one.
    assert site.slurm.job(job)["JobState"] == "RUNNING"
    batch = place.parent / "step_batch"
    other = site.session(batch, shlex.join(["exec", sys.executable, "-c", COMPUTES]))
    assert line(other) == "CUDA_SUCCESS"
    assert site.slurm.wait(job) == "CANCELLED"
    log = site.leased.log.read_text()
    assert f"job {job}.batch (uid 0) is ended" in log
    assert f"job {job}.extern (uid 0) is ended" not in log
    for process in (session, other):
        process.kill()
        process.communicate()
