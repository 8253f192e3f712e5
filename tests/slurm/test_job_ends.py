"""However a job ends, its usage is written once, on the row of the run that had it, and is right.

All jobs end at once, on one cluster: one is cancelled, one reaches its time limit, and the node of
two others fails, one of which Slurm runs again.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from tests.slurm.accounted import MIB, Run, gpu_work, have_usage, peaks, script, states
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site

CLOCKS_S = 60.0  # how far the daemon's and Slurm's times of a run may be apart
LONG_S = 180.0  # slurmctld looks at time limits twice a minute, and lets a failed node's job wait
SIZES = {"cancelled": 16, "timeout": 32, "failed": 48, "again": 64}  # MiB of each


@dataclass
class Ends:
    site: Site
    jobs: dict[str, int]
    usage: dict[str, dict[str, Any]]  # as the daemon had it when the first run had ended

    def written(self, name: str) -> int:
        """How often the daemon says that it has written usage of the job."""
        line = f"usage of job {self.jobs[name]} is in Slurm's accounting\n"
        return self.site.leased.log.read_text().count(line)


def submit(site: Site, name: str, node: str, *options: str) -> tuple[int, Path]:
    """A job that uses a GPU and then waits for its end, unless it is run again; and the file that
    is there as soon as it has used it."""
    mark = site.work / name
    path = script(
        *(site, name, gpu_work(SIZES[name] * MIB), f"touch {mark}"),
        "[ ${SLURM_RESTART_COUNT:-0} != 0 ] || exec sleep 600",
    )
    given = ("--gres=shard:1", "-w", node, "-o", str(site.work / f"{name}.log"), *options)
    return site.slurm.sbatch(*given, path.as_posix(), cwd=site.work), mark


def fail_node(site: Site, node: str) -> None:
    """Its slurmd is gone, and slurmctld takes the node for down; its jobs' processes go on."""
    [slurmd] = [each for each in site.slurm.daemons if each.name == f"slurmd-{node}"]
    os.kill(slurmd.process.pid, signal.SIGKILL)
    slurmd.process.wait()
    site.slurm.daemons.remove(slurmd)
    site.slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")


@pytest.fixture(scope="module")
def ends() -> Iterator[Ends]:
    often = ["leased.monitors.ended_jobs.EVERY_S=1"]  # which jobs have ended is asked for
    with sharing_site(nodes=2, hurried=often) as site:
        whole, failing = site.slurm.layout.node_names
        started = {
            "cancelled": submit(site, "cancelled", whole),
            "timeout": submit(site, "timeout", whole, "--time=1"),
            "failed": submit(site, "failed", failing, "--no-requeue"),
            "again": submit(site, "again", failing, "--requeue"),
        }
        for name, (_, mark) in started.items():
            wait_until(f"job {name} to have used the GPU", mark.exists)
        jobs = {name: job for name, (job, _) in started.items()}
        site.slurm.run("scontrol", "update", f"jobid={jobs['timeout']}", "endtime=now+1")
        site.slurm.run("scancel", str(jobs["cancelled"]))
        started["again"][1].unlink()
        fail_node(site, failing)
        again = f"jobid={jobs['again']}"
        wait_until(
            "it to wait again", lambda: site.slurm.job(jobs["again"])["JobState"] == "PENDING"
        )
        site.slurm.run("scontrol", "update", again, "starttime=now+1hour")
        usage = {}
        for name in ("cancelled", "failed", "again", "timeout"):
            is_no_tenant(site, jobs[name])
            socket = site.leased.admin_socket
            usage[name] = ask(socket, {"op": "usage", "job_id": jobs[name]})["usage"]
        site.slurm.start_slurmd(failing)
        site.slurm.run("scontrol", "update", again, "starttime=now+3")
        yield Ends(site, jobs, usage)


def is_no_tenant(site: Site, job: int) -> None:
    wait_until(f"job {job} to be no tenant", lambda: job not in site.tenants(), timeout=LONG_S)


def check(ends: Ends, name: str, run: Run) -> None:
    """One record, which says what the daemon has measured, and what can be."""
    assert run.records == 1
    [(uuid, figures)] = run.usage["gpus"].items()
    assert {key: figures[key] for key in ends.usage[name][uuid]} == ends.usage[name][uuid]
    assert run.peaks == [SIZES[name]]
    assert 0 < figures["lease_s"] + figures["wait_s"] <= figures["time_s"] + 0.002
    for span in (run.usage["to"] - run.usage["from"], run.elapsed_s):
        assert abs(figures["time_s"] - span) < CLOCKS_S


@pytest.mark.parametrize(
    ("name", "state"), [("cancelled", "CANCELLED"), ("timeout", "TIMEOUT"), ("failed", "NODE_FAIL")]
)
def test_a_job_that_was_ended_has_its_usage_once(ends: Ends, name: str, state: str) -> None:
    [run] = have_usage(ends.site, ends.jobs[name], 1)
    assert run.state == state
    check(ends, name, run)
    wait_until("the daemon to say so", lambda: ends.written(name) == 1)


def test_a_job_whose_node_failed_has_its_usage_for_each_run(ends: Ends) -> None:
    job = ends.jobs["again"]
    found = have_usage(ends.site, job, 2, timeout=LONG_S)
    assert states(found) == ["NODE_FAIL", "COMPLETED"]
    assert peaks(found) == [[SIZES["again"]]] * 2
    check(ends, "again", found[0])
    wait_until("the daemon to say so", lambda: ends.written("again") == 2)


def test_nothing_is_written_again_when_the_node_is_back(ends: Ends) -> None:
    """Its slurmd ends what is left of the jobs, and the plugin reports their ends once more."""
    ends.site.nodes_are_idle()
    failing = ends.site.slurm.layout.node_names[1]
    path = script(ends.site, "later", gpu_work(16 * MIB)).as_posix()
    later = ends.site.slurm.sbatch("--gres=shard:1", "-w", failing, path, cwd=ends.site.work)
    assert peaks(have_usage(ends.site, later, 1)) == [[16]]  # the jobs before it had their turn
    assert ends.written("failed") == 1
    [run] = have_usage(ends.site, ends.jobs["failed"], 1)
    check(ends, "failed", run)
