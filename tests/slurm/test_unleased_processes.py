"""A process without a lease in a real job: its step is ended, its job and the node go on."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from leased.api.client import ask
from tests.monitors.test_unleased_processes import WITHOUT
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site

STRAYS = '[strays]\naction = "end"\ngrace = "1s"\nallow = []\n'
HELD = WITHOUT.replace("sys.stdin.readline()", "import time; time.sleep(600)")


@pytest.fixture
def site() -> Iterator[Site]:
    with sharing_site(leased_conf=STRAYS) as found:
        yield found


def test_a_step_without_a_lease_is_ended(site: Site) -> None:
    slurm, leased, work = site.slurm, site.leased, site.work
    program = work / "without.py"
    program.write_text(HELD)
    script = work / "job.sh"
    # The first step unsets what makes it wait for its turn; the second is an honest one.
    script.write_text(
        f"#!/bin/sh\nsrun env -u LD_PRELOAD {sys.executable} {program}\n"
        "echo step: $?\nsrun printenv GPU_LEASE_SOCKET\n"
    )
    log = work / "job.log"
    job = slurm.sbatch("--gres=shard:1", "-o", str(log), str(script), cwd=work)
    assert slurm.wait(job, timeout=120) == "COMPLETED", log.read_text()
    text = log.read_text()
    assert f"STEP {job}.0 ON {slurm.node} CANCELLED" in text
    assert "uses GPU 0 without a lease: is LD_PRELOAD unset" in text, "the user is told"
    assert text.splitlines()[-1] == f"{work.parent}/run/tenant.sock", "the job went on"
    said = leased.log.read_text()
    assert f"job {job}.0 (uid 0): process " in said
    assert f"job {job}.0 (uid 0) is ended" in said
    strays = ask(leased.admin_socket, {"op": "status"})["strays"]
    assert strays["jobs"] == {str(job): 1}
    assert strays["total"] == 1

    def forgotten() -> bool:
        return not ask(leased.admin_socket, {"op": "status"})["strays"]["now"]

    wait_until("the stray to be forgotten", forgotten)
    wait_until("the node to be idle", lambda: slurm.node_state() == "idle")


def test_a_batch_step_without_a_lease_ends_with_its_job(
    site: Site,
) -> None:
    slurm, work = site.slurm, site.work
    program = work / "without.py"
    program.write_text(HELD)
    job = slurm.sbatch(
        *("--gres=shard:1", "-o", "/dev/null"),
        *("--wrap", f"LD_PRELOAD= {sys.executable} {program}"),
        cwd=work,
    )
    assert slurm.wait(job, timeout=120) == "CANCELLED"
    wait_until("the node to be idle", lambda: slurm.node_state() == "idle")
