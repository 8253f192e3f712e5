"""gpu-leasectl on a real Slurm: a node in order, what is missing, a drained device."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from typing import Any

from leased.slurm.commands import Slurm
from tests.conftest import ROOT
from tests.slurm.processes import wait_until
from tests.slurm.site import Site
from tests.slurm.test_share import gpu_job, site
from tests.support.together import zip_strict

__all__ = ["site"]  # the fixture, as a cluster of this module's own


def gpu_leasectl(site: Site, *words: str) -> tuple[int, Any]:
    """Exit status and JSON of a command as an administrator types it on the node."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "leased.cli.ctl", "--config", str(site.leased.config)),
            *(*words, "--json"),
        ],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=site.slurm.env,
    )
    return done.returncode, json.loads(done.stdout)


def faults_of(findings: list[dict[str, Any]]) -> set[str]:
    """The checks that found a fault, but for one that this site has with Slurm before 23.11.5: its
    gres.conf has neither Type= nor Cores=."""
    return {f["id"] for f in findings if f["level"] == "fault"} - {"gres-whole"}


def test_check_finds_the_node_in_order(site: Site) -> None:
    code, findings = gpu_leasectl(site, "check")
    found = {finding["id"]: finding for finding in findings}
    assert faults_of(findings) == set()
    assert code == (found["gres-whole"]["level"] == "fault")
    for name in ("driver", "daemon", "plugin-version", "gres-count", "accounting", "libslurm"):
        assert found[name]["level"] == "ok", found[name]
    assert found["node"]["text"] == f"this is node {site.slurm.node}"
    # The site of these tests lets users choose more at submission than its node does.
    assert found["plugin-arguments"]["level"] == "warning"


def test_check_names_what_is_missing(site: Site) -> None:
    site.leased.stop()
    conf = site.slurm.layout.etc / "plugstack.conf"
    text = conf.read_text()
    try:
        conf.write_text("")
        code, findings = gpu_leasectl(site, "check")
        assert faults_of(findings) == {"daemon", "tenant-socket", "plugstack"}
        assert code == 1
    finally:
        conf.write_text(text)
        site.leased.start()


def test_drained_device_holds_up_a_job_until_it_is_resumed(site: Site) -> None:
    assert gpu_leasectl(site, "drain", "0", "--wait")[1]["holders"] == []
    job = gpu_job(site, "drained", "--gpu-share=tq:5")

    def waits() -> bool:
        tenants = gpu_leasectl(site, "status")[1]["tenants"]
        return any(t["job_id"] == job and t["state"] == "waits" for t in tenants)

    wait_until("the job to wait for the device", waits)
    assert gpu_leasectl(site, "status")[1]["devices"][0]["drain"] == "drained"
    assert gpu_leasectl(site, "resume", "0")[0] == 0
    assert site.slurm.wait(job) == "COMPLETED"
    code, answer = gpu_leasectl(site, "usage", str(job))
    (used,) = answer["usage"].values()
    assert (code, used["wait_s"] > 0, used["lease_s"] > 0) == (0, True, True)
    (recorded,) = site.slurm.accounting(job, usage=True).usage["gpus"].values()
    assert recorded == {"gpu": 0} | used


def test_tasks_of_an_array_are_named_and_ended_one_by_one(site: Site) -> None:
    """The last task has the number of the array, which means all of them to scancel."""
    array = site.slurm.sbatch(
        *("--array=3-4", "--gres=shard:1", "-o", "/dev/null", "--wrap", "exec sleep 600"),
        cwd=site.work,
    )
    wait_until("both tasks to be tenants", lambda: len(site.tenants()) == 2)
    listed = site.slurm.run("squeue", "-h", "-o", "%i %A").stdout.split()
    numbers = dict(zip_strict(listed[::2], map(int, listed[1::2])))
    tenants = gpu_leasectl(site, "status")[1]["tenants"]
    assert {t["job"]: t["job_id"] for t in tenants} == numbers
    (last,) = (name for name, number in numbers.items() if number == array)
    (other,) = numbers.keys() - {last}
    code, answer = gpu_leasectl(site, "usage", last)
    assert (code, answer["job"], answer["job_id"]) == (0, last, array)
    assert gpu_leasectl(site, "usage", str(array))[0] == 1, "it is several jobs"
    assert f"job {other} has managed memory" in site.leased.log.read_text()

    async def cancel() -> None:
        slurm = Slurm(site.slurm.env)
        slurm.cancel(last)
        await asyncio.gather(*slurm.tasks)

    asyncio.run(cancel())
    assert site.slurm.wait(last) == "CANCELLED"
    assert site.slurm.job(other)["JobState"] == "RUNNING"
    site.slurm.run("scancel", other)
    site.slurm.wait(other)
    wait_until(
        "its usage to be written",
        lambda: f"usage of job {other} is in Slurm's accounting" in site.leased.log.read_text(),
    )
