"""A node that no slurm.conf names: `slurmd -Z` tells slurmctld of it. Its GPUs are of two kinds,
and its shards have a type, as public guides write it (shard:L40S:12)."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.conftest import ROOT
from tests.slurm.processes import wait_until
from tests.slurm.site import Site, sharing_site
from tests.slurm.test_shard_memory import ALLOCATES, MIB
from tests.slurm.test_share import JOB
from tests.support.ports import free_port

NODE = "cloud7.example.org"
# By the kinds of GPUs, in their order: shards, and MiB that each stands for.
KINDS = {"L40S": (12, 16), "H100": (8, 24)}


def join(site: Site) -> None:
    """As the machine does that a cloud has just started."""
    gres = [f"gpu:{kind}:1,shard:{kind}:{shards}" for kind, (shards, _) in KINDS.items()]
    conf = f"Gres={','.join(gres)} NodeAddr=127.0.0.1 CPUs=8 RealMemory=2000"
    site.slurm.start_slurmd(NODE, "-Z", "--conf", conf)
    wait_until("the node to be there", lambda: site.slurm.node_state(NODE) == "idle")


def leave(site: Site) -> None:
    site.slurm.stop_daemon(f"slurmd-{NODE}")
    site.slurm.run("scontrol", "delete", f"nodename={NODE}")


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    dynamic = ["MaxNodeCount=8", f"SlurmdPort={free_port()}"]
    fences = [
        f'[device.{n}]\nmem_per_shard = "{mib}MiB"\n' for n, (_, mib) in enumerate(KINDS.values())
    ]
    with sharing_site(gpus=2, slurm_conf=dynamic, leased_conf="".join(fences)) as made:
        (made.work / "allocates.py").write_text(ALLOCATES)
        with (made.slurm.layout.etc / "gres.conf").open("a") as out:
            for file, (kind, (shards, _)) in zip(made.slurm.layout.gpu_files, KINDS.items()):
                out.write(f"NodeName={NODE} Name=gpu Type={kind} File={file}\n")
                out.write(f"NodeName={NODE} Name=shard Type={kind} File={file} Count={shards}\n")
        join(made)
        yield made


def test_jobs_take_turns_on_such_a_node_and_are_accounted(site: Site) -> None:
    asked = ("-w", NODE, "--gres=shard:L40S:6", "--gpu-share=tq:500ms,lock:on")
    program = f"{sys.executable} {JOB} --bytes {32 * MIB} --steps 4 --result /dev/null"
    # Neither ends before both are there.
    script = f"until [ -e {site.work}/go ]; do sleep 0.1; done; exec {program}"
    jobs = [
        site.slurm.sbatch(*asked, "-o", f"{site.work}/turns.log", "--wrap", script, cwd=site.work)
        for _ in range(2)
    ]
    for job in jobs:
        site.wait_for_tenant(job)
    (site.work / "go").touch()
    handoffs = 0
    for job in jobs:
        assert site.slurm.wait(job) == "COMPLETED", (site.work / "turns.log").read_text()
        assert site.slurm.job(job)["BatchHost"] == NODE
        (gpu,) = site.slurm.accounting(job, usage=True).usage["gpus"].values()
        assert gpu["lease_s"] > 0
        handoffs += gpu["handoffs"]
    assert handoffs > 0


@pytest.mark.parametrize(("gres", "mib"), [("shard:L40S:4", 4 * 16), ("shard:H100:3", 3 * 24)])
def test_a_kind_of_shards_is_a_kind_of_gpu_and_of_memory(site: Site, gres: str, mib: int) -> None:
    command = f"cd {ROOT} && {sys.executable} {site.work}/allocates.py"
    said = site.batch(command, f"--gres={gres}", "-w", NODE)
    assert said.split() == [str(mib * MIB), "0", "2"], said


def test_a_node_that_comes_back_is_shared_again(site: Site) -> None:
    leave(site)
    assert site.slurm.node_state(NODE) == ""
    join(site)
    done = site.run("-w", NODE, "--gres=shard:H100:1", "printenv", "GPU_LEASE_SOCKET")
    assert done.stdout.strip() == f"{site.leased.run_dir}/tenant.sock", done.stderr
