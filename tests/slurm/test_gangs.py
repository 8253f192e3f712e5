"""Jobs on several nodes that share GPUs, from sbatch to sacct: all of a job runs, or nothing."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Iterator

import pytest

from leased.slurm import usage_record
from tests.slurm.gangs import Gang, halves, submit
from tests.slurm.processes import wait_until
from tests.slurm.several_nodes import SeveralNodes, several_nodes

LIMITS = '[limits]\nquantum_min = "100ms"\n'
HANDOFFS = 20  # of each job on each of its nodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[SeveralNodes]:
    with several_nodes(trace=True, leased_conf=LIMITS) as made:
        yield made


def has_had_its_turns(gang: Gang) -> bool:
    """Each of its GPUs has changed to it often enough."""
    tenants = [t for node in gang.nodes for t in gang.cluster.sites[node].status()]
    used = [u for t in tenants if t["job_id"] == gang.number for u in t["gpus"].values()]
    return min((each["handoffs"] for each in used), default=0) >= HANDOFFS


def record(gang: Gang) -> usage_record.Run:
    """What Slurm's accounting has of the job, once all its nodes have said it."""
    text = ""

    def complete() -> bool:
        nonlocal text
        text = gang.cluster.slurm.sacct(gang.number, "SystemComment").get("SystemComment", "")
        return text.count(usage_record.MARK) == len(gang.nodes)

    wait_until(f"the usage of job {gang.number}", complete, step=0.3)
    found = usage_record.read(text)
    assert found is not None
    return found


def test_jobs_take_turns_on_all_their_nodes_at_once(cluster: SeveralNodes) -> None:
    """Two on both nodes, one on the second; each rank checks its neighbour's data."""
    gangs = [submit(cluster, "a"), submit(cluster, "b"), submit(cluster, "one", nodes=[1])]
    for gang in gangs:
        gang.gets_on()
    for gang in gangs:
        turns = functools.partial(has_had_its_turns, gang)
        wait_until(f"{gang.name} to have had its turns", turns, step=0.3)
    for gang in gangs:
        gang.ends()
    assert halves(gangs) == []
    for gang in gangs[:2]:
        run = record(gang)
        assert run.nodes == {cluster.sites[n].devices()[0]: cluster.names[n] for n in gang.nodes}
        assert min(used["handoffs"] for used in run.gpus.values()) >= HANDOFFS
        assert [used["overruns"] for used in run.gpus.values()] == [0, 0]
    adds_up(cluster, gangs)


def adds_up(cluster: SeveralNodes, gangs: list[Gang]) -> None:
    """The report counts each GPU of each job once."""
    runs = {gang.name: record(gang) for gang in gangs}
    jobs = ",".join(str(gang.number) for gang in gangs)
    report = sys.executable, "-m", "leased.cli.ctl", "report", "--json", "-j", jobs, "--by"
    said = {by: json.loads(cluster.slurm.run(*report, by).stdout) for by in ("job", "node")}
    groups = {each["name"]: each["lease_s"] for each in said["job"]["groups"]}
    for gang in gangs:
        wanted = sum(used["lease_s"] for used in runs[gang.name].gpus.values())
        assert groups[str(gang.number)] == pytest.approx(wanted)
    assert {each["name"] for each in said["node"]["groups"]} == set(cluster.names)
    for by in said.values():
        assert by["total"]["lease_s"] == pytest.approx(sum(groups.values()))
        assert sum(each["lease_s"] for each in by["groups"]) == pytest.approx(sum(groups.values()))
