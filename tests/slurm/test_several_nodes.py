"""Jobs on several nodes where these cannot share, and what the daemon of each node is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from spank.allocation import Allocation, parse
from tests.slurm.cluster import PLUGIN
from tests.slurm.several_nodes import SeveralNodes, several_nodes

PROGRAM = PLUGIN.with_name("gpu-lease-allocation")
CANNOT = "gpu-share: a job on several nodes cannot share GPUs here"


@pytest.fixture(scope="module")
def cluster() -> Iterator[SeveralNodes]:
    """Its users may submit such jobs, and its daemons cannot serve them."""
    with several_nodes(gpus=2, peers=False) as made:
        yield made


def test_each_node_has_a_daemon_and_a_gpu_of_its_own(cluster: SeveralNodes) -> None:
    """A job is known where it runs, and nowhere else."""
    first, second = (site.devices() for site in cluster.sites)
    assert len({*first, *second}) == 4
    for here, name in enumerate(cluster.names):
        ask = "--gres=shard:1", "-w", name
        job = cluster.slurm.sbatch(*ask, "--wrap", "exec sleep 600", cwd=cluster.work)
        cluster.sites[here].wait_for_tenant(job)
        assert [job in site.tenants() for site in cluster.sites] == [n == here for n in (0, 1)]
        cluster.slurm.run("scancel", str(job))
        cluster.slurm.wait(job)


def test_the_daemons_refuse_what_they_cannot_serve(cluster: SeveralNodes) -> None:
    """Each task says so, and the nodes go on."""
    done = cluster.sites[0].run("--gres=shard:1", "-N2", "-n4", "touch", f"{cluster.work}/ran")
    assert done.returncode == 1
    said = [line for line in done.stderr.splitlines() if "gpu-share" in line]
    assert len(said) == 4
    assert all(line.startswith(f"{CANNOT}: peers.port is not set") for line in said)
    assert not (cluster.work / "ran").exists()
    cluster.sites[0].nodes_are_idle()


@pytest.mark.parametrize("gres", ["--gres=gpu:1", ""])
def test_jobs_on_several_nodes_that_share_nothing_are_left_alone(
    cluster: SeveralNodes, gres: str
) -> None:
    done = cluster.sites[0].run(*filter(None, [gres]), "-N2", "printenv", "SLURM_NODEID")
    assert sorted(done.stdout.split()) == ["0", "1"], done.stderr


def gpus_here(cluster: SeveralNodes, job: int, node: str) -> Allocation:
    """What the plugin is told of the job on this node."""
    env = {"SLURMD_NODENAME": node}
    return parse(cluster.slurm.run(str(PROGRAM), str(job), env=env).stdout)


def test_a_job_has_the_gpus_that_slurm_gave_it_on_each_node(cluster: SeveralNodes) -> None:
    """Not on each of them those of its first node."""
    first, second = cluster.names
    fills = ("--gres=shard:4", "-w", first, "--wrap", "exec sleep 600")
    full = cluster.slurm.sbatch(*fills, cwd=cluster.work)
    cluster.sites[0].wait_for_tenant(full)
    cluster.slurm.run("salloc", "--no-shell", "--gres=shard:1", "-N2", "--job-name=gang")
    job = int(cluster.slurm.run("squeue", "-h", "--name=gang", "-o", "%A").stdout)
    told = [gpus_here(cluster, job, name) for name in cluster.names]
    assert [each.node for each in told] == [first, second]
    assert {each.nodes for each in told} == {(first, second)}
    assert [each.gpus for each in told] == [(1,), (0,)]
    cluster.slurm.run("scancel", str(full), str(job))
    cluster.sites[0].nodes_are_idle()
