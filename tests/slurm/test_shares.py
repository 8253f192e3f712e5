"""Whole jobs with shares of a GPU's time, beside one without."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leased.api.client import ask
from leased.cli import show_jobs
from tests.conftest import ROOT
from tests.emugpu.server import EmulatedGpu
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.support.programs import SET_UP

TURNS = 3  # handoffs of each until the first job may end

# Kernels of 5 ms until a file is there.
WORKS = (
    SET_UP
    + """
import pathlib
while not pathlib.Path(sys.argv[1]).exists():
    ok(spin(5_000_000)); ok(d.cuCtxSynchronize())
"""
)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Time slices cannot be set, so jobs with shares take turns."""
    with sharing_site() as made:
        EmulatedGpu(made.work.parent / "gpu").fail(0, "controls-unknown")
        yield made


def submit(site: Site, name: str, options: str) -> int:
    """A job that computes until NAME.end is there; what it prints is in NAME.log."""
    program = site.work / "works.py"
    program.write_text(WORKS)
    end, log = site.work / f"{name}.end", site.work / f"{name}.log"
    return site.slurm.sbatch(
        *("--gres=shard:1", f"--gpu-share={options}", "-o", str(log)),
        *("--wrap", f"cd {ROOT} && exec {sys.executable} {program} {end}"),
        cwd=site.work,
    )


def status(site: Site) -> Any:
    return ask(site.leased.admin_socket, {"op": "status"})


def tenant(site: Site, job: int) -> Any:
    return next(one for one in site.status() if one["job_id"] == job)


def handoffs(site: Site, job: int) -> int:
    return sum(used["handoffs"] for used in tenant(site, job)["gpus"].values())


def wait_for_turns(site: Site, job: int) -> None:
    wait_until(f"job {job} to have had turns", lambda: handoffs(site, job) >= TURNS)


def finish(site: Site, name: str, job: int) -> None:
    (site.work / f"{name}.end").touch()
    assert site.slurm.wait(job) == "COMPLETED", (site.work / f"{name}.log").read_text()


def test_jobs_with_shares_and_without_take_turns_and_one_too_many_is_told(site: Site) -> None:
    options = {"a": "request:0.5,limit:0.6", "b": "request:0.3", "c": "tq:100ms"}
    jobs = {name: submit(site, name, said) for name, said in options.items()}
    for job in jobs.values():
        site.wait_for_tenant(job)
        wait_for_turns(site, job)
    (device,) = (one for one in status(site)["devices"] if one["requested"])
    assert (device["requested"], device["policy"]) == (0.8, "elastic")
    shares = {name: tenant(site, job)["share"] for name, job in jobs.items()}
    assert shares["c"] is None
    assert (shares["a"]["request"], shares["a"]["limit"]) == (0.5, 0.6)
    said = "\n".join(show_jobs.shares(status(site)))
    assert f"GPU {device['index']}: 0.8 of its time is requested" in said
    assert f"job {jobs['b']} 0.3 at least" in said

    much = submit(site, "much", "request:0.4")
    assert site.slurm.wait(much) == "FAILED"
    told = (site.work / "much.log").read_text()
    assert "request:0.4 is more than is left of its GPU" in told
    assert "0.2 is left" in told

    for name, job in jobs.items():
        finish(site, name, job)
        used = site.slurm.accounting(job, usage=True).usage["gpus"]
        assert sum(one["handoffs"] for one in used.values()) >= TURNS
    wait_until("their tenants to be gone", lambda: site.tenants() == [])
    site.node_works()


def test_a_job_at_its_limit_is_shown_as_such(site: Site) -> None:
    job = submit(site, "slow", "limit:0.05,tq:100ms")
    site.wait_for_tenant(job)
    wait_until("it to be at its limit", lambda: tenant(site, job)["share"]["limited_s"] is not None)
    wait_until("it to go on", lambda: handoffs(site, job) >= 1)
    finish(site, "slow", job)
