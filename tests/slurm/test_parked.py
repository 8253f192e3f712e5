"""A parked job whose time limit ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from leased.cli.ctl import ask
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


@pytest.mark.parametrize("memory", ["swap", "managed"])
def test_it_ends_as_any_job_and_leaves_nothing(site: Site, memory: str) -> None:
    program, ready, log = (site.work / f"{memory}.{end}" for end in ("py", "ready", "log"))
    program.write_text(HOLDER)
    job = site.slurm.sbatch(
        *("--gres=shard:1", f"--gpu-share=tq:1,memory:{memory}", "-o", str(log)),
        *("--wrap", f"cd {ROOT} && exec {sys.executable} {program} {ready}"),
        cwd=site.work,
    )
    wait_until("its memory to be filled", ready.exists)
    ask(site.leased.admin_socket.with_name("tenant.sock"), {"op": "park", "job_id": job})
    wait_until("it to be parked", lambda: site.status()[0]["state"] == "parked")
    wait_until("its memory to leave", lambda: sum(site.status()[0]["resident_bytes"].values()) == 0)
    # Its limit ends now, whatever it asked for; slurmctld looks every half minute.
    site.slurm.run("scontrol", "update", f"jobid={job}", "endtime=now+1")
    assert site.slurm.wait(job) == "TIMEOUT", log.read_text()
    wait_until("its tenant to be gone", lambda: job not in site.tenants())
    (figures,) = site.slurm.accounting(job, usage=True).usage["gpus"].values()
    assert figures["peak_bytes"] >= SIZE
    site.node_works()
