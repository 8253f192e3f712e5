"""Jobs on several nodes that share GPUs, from sbatch to sacct: all of a job runs, or nothing."""

from __future__ import annotations

import functools
import json
import os
import shutil
import sys
from collections.abc import Iterator

import pytest

from leased.slurm import usage_record
from tests.slurm import accounted
from tests.slurm.gangs import Gang, submit
from tests.slurm.processes import wait_until
from tests.slurm.ranks import halves
from tests.slurm.several_nodes import SeveralNodes, several_nodes
from tests.support.ports import free_port

LIMITS = '[limits]\nquantum_min = "100ms"\n'
HANDOFFS = 20  # of each job on each of its nodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[SeveralNodes]:
    with several_nodes(trace=True, leased_conf=LIMITS) as made:
        yield made


def has_had_its_turns(gang: Gang, handoffs: int = HANDOFFS) -> bool:
    """Each of its GPUs has changed to it often enough."""
    tenants = [t for node in gang.nodes for t in gang.cluster.sites[node].status()]
    used = [u for t in tenants if t["job_id"] == gang.number for u in t["gpus"].values()]
    return min((each["handoffs"] for each in used), default=0) >= handoffs


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


# How launchers begin ranks: by one step, by a step on each node, or (as Open MPI's mpirun does) the
# first ones in the batch script and the others by a step on the other nodes.
LAUNCHERS = {
    "srun": "unset WORLD_SIZE; srun $rank",
    "each-node": "RANK=0 srun -N1 -n1 -w $n0 $rank & p=$!; RANK=1 srun -N1 -n1 -w $n1 $rank",
    "mpirun": "RANK=0 $rank & p=$!; RANK=1 srun -N1 -n1 -w $n1 $rank",
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_ranks_run_together_whatever_starts_them(cluster: SeveralNodes, launcher: str) -> None:
    other = submit(cluster, f"beside-{launcher}")
    script = f"export WORLD_SIZE=2; {LAUNCHERS[launcher]} && wait $p"
    gang = submit(cluster, launcher, script=script)
    for _ in range(2):
        gang.gets_on()
        other.gets_on()
    for each in (gang, other):
        each.ends()
    assert halves([gang, other]) == []


# As sites start them: of neither anything is replaced. Open MPI's mpirun starts its daemons by
# srun; torchrun's agents meet at a store over TCP (c10d), and each starts the ranks of its node
# (where their output goes is said, since PyTorch 1.13 does not find its default under Python 3.11).
ROOT_TOO = "--allow-run-as-root --oversubscribe" if os.geteuid() == 0 else ""
COMMANDS = {
    "mpirun": f"{{program}} {ROOT_TOO} -n 2 -N 1 $rank --mpi",
    "torchrun": (
        "srun --ntasks-per-node=1 {program} --nnodes=2 --nproc_per_node=1 --rdzv_backend=c10d "
        "--rdzv_endpoint=127.0.0.1:{port} --rdzv_id=$SLURM_JOB_ID --redirects=1 --tee=2 "
        "--no_python $rank"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("launcher", COMMANDS)
def test_ranks_check_each_other_s_data_through_handoffs(
    cluster: SeveralNodes, launcher: str
) -> None:
    """HANDOFFS, of the environment: of each job on each node."""
    program = shutil.which(launcher)
    if program is None:
        pytest.skip(f"this machine has no {launcher}")
    scripts = [COMMANDS[launcher].format(program=program, port=free_port()) for _ in range(2)]
    gangs = [submit(cluster, f"{launcher}-{n}", script=text) for n, text in enumerate(scripts)]
    handoffs = int(os.environ.get("HANDOFFS", HANDOFFS))
    for gang in gangs:
        gang.gets_on()
    for gang in gangs:
        turns = functools.partial(has_had_its_turns, gang, handoffs)
        wait_until(f"{gang.name} to have had its turns", turns, timeout=30 + 3 * handoffs, step=0.3)
    for gang in gangs:
        gang.ends(quiet=launcher != "torchrun")  # c10d says which addresses it has tried
    assert halves(gangs) == []


def test_a_step_on_one_node_needs_no_others(cluster: SeveralNodes) -> None:
    """The script works on its own GPU before it begins ranks everywhere; the other node's is lent
    to others meanwhile."""
    alone = "RANK=0 WORLD_SIZE=1 ${rank%% --name *} --name part"
    beside = submit(cluster, "beside-part", nodes=[1])
    whole = submit(cluster, "parts", script=f"{alone} && srun $rank")
    part = Gang(whole.number, "part", [0], cluster)
    part.gets_on()
    beside.gets_on()
    assert whole.number not in cluster.sites[1].tenants()
    (cluster.work / "part.0.end").touch()
    whole.gets_on()
    beside.gets_on()
    for gang in (whole, beside):
        gang.ends()
    assert halves([whole, beside]) == []


@pytest.mark.parametrize("place", [0, 1])
def test_a_daemon_is_killed_and_comes_back(cluster: SeveralNodes, place: int) -> None:
    gangs = [submit(cluster, f"again-{place}"), submit(cluster, f"beside-again-{place}")]
    for gang in gangs:
        gang.gets_on()
    cluster.sites[place].leased.kill()
    cluster.sites[place].leased.start()
    for gang in gangs:
        gang.gets_on(10)
    for gang in gangs:
        gang.ends()
    assert halves(gangs) == []


def test_a_requeued_job_runs_again_on_all_its_nodes(cluster: SeveralNodes) -> None:
    gang = submit(cluster, "requeued", "--requeue")
    gang.gets_on()
    for site in cluster.sites:
        site.wait_for_tenant(gang.number)
    cluster.sites[0].requeue(gang.number)
    for kind in ("port", "pid", "steps"):
        for rank in range(2):
            gang.file(rank, kind).unlink()
    beside = submit(cluster, "beside-requeued")
    for each in (gang, beside):
        each.gets_on()
    gang.ends(quiet=False)  # Slurm says that the first run was ended
    beside.ends()
    wait_until("each run to have a part of each node", lambda: parts(gang) == [2, 2], step=0.3)


def parts(gang: Gang) -> list[int]:
    """How many the record of each run of the job has."""
    return [run.records for run in accounted.runs(gang.cluster.sites[0], gang.number)]


def test_a_node_that_dies_takes_its_jobs_and_nobody_else_waits(cluster: SeveralNodes) -> None:
    """What is left of the job ends by Slurm, and its GPUs are others' at once."""
    dies = submit(cluster, "dies", "--no-requeue")
    stays = submit(cluster, "stays", nodes=[0])
    for gang in (dies, stays):
        gang.gets_on()
    cluster.fails(1)
    try:
        assert cluster.slurm.wait(dies.number) == "NODE_FAIL"
        stays.gets_on(10)
        assert cluster.sites[0].tenants() == [stays.number]
    finally:
        cluster.comes_back(1)
    after = submit(cluster, "after")
    for gang in (after, stays):
        gang.gets_on()
    for gang in (after, stays):
        gang.ends()
