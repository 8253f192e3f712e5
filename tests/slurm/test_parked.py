"""Parked jobs whose time limits end."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leased.api.client import ask
from tests.conftest import ROOT
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.programs import SET_UP

MIB = 1 << 20
SIZE = 100 * MIB

HOLDER = (
    SET_UP
    + f"""
import pathlib, time
p = ok(d.cuMemAlloc({SIZE})); ok(d.cuMemsetD8(p, 7, {SIZE})); ok(d.cuCtxSynchronize())
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with sharing_site() as made:
        yield made


def parked(site: Site, memory: str) -> int:
    """A job with memory of that kind, all of which has left the device by park."""
    program, ready, log = (site.work / f"{memory}.{end}" for end in ("py", "ready", "log"))
    program.write_text(HOLDER)
    job = site.slurm.sbatch(
        *("--gres=shard:1", f"--gpu-share=tq:1,memory:{memory}", "-o", str(log)),
        *("--wrap", f"cd {ROOT} && exec {sys.executable} {program} {ready}"),
        cwd=site.work,
    )

    def tenant() -> dict[str, Any]:
        return next(one for one in site.status() if one["job_id"] == job)

    wait_until("its memory to be filled", ready.exists)
    ask(site.leased.admin_socket.with_name("tenant.sock"), {"op": "park", "job_id": job})
    wait_until("it to be parked", lambda: tenant()["state"] == "parked")
    wait_until("its memory to leave", lambda: sum(tenant()["resident_bytes"].values()) == 0)
    return job


def test_they_end_as_any_job_and_leave_nothing(site: Site) -> None:
    """Both at once, since slurmctld looks now and then for limits that have ended."""
    jobs = {memory: parked(site, memory) for memory in ("swap", "managed")}
    # Their limits end now, whatever they asked for.
    for job in jobs.values():
        site.slurm.run("scontrol", "update", f"jobid={job}", "endtime=now+1")
    for memory, job in jobs.items():
        assert site.slurm.wait(job) == "TIMEOUT", (site.work / f"{memory}.log").read_text()
    wait_until("their tenants to be gone", lambda: site.tenants() == [])
    for job in jobs.values():
        (figures,) = site.slurm.accounting(job, usage=True).usage["gpus"].values()
        assert figures["peak_bytes"] >= SIZE
    site.node_works()
