"""Install, use, restart, upgrade, reboot and remove, on two booted machines with Slurm's packages.

Run by `make test-cluster`, which builds the packages and the machines' tree; the steps follow each
other, as they do at a site. What an administrator types is taken from README.md.
"""

from __future__ import annotations

import pytest

from tests.cluster.machine import UNIT
from tests.cluster.site import Site
from tests.slurm.processes import wait_until

OURS = ("gpu-leased", "gpu-lease-shim", "slurm-spank-gpu-share")
NEXT = "99.0.0"
ENDLESS = 1_000_000  # steps
BIG, SMALL = 160, 8  # MiB: two big ones do not fit on a GPU of 256
OTHER_USAGE_DB = """
import sqlite3, sys
store = sqlite3.connect("/var/lib/gpu-leased/usage.db", timeout=30)
print(store.execute("PRAGMA user_version").fetchone()[0])
store.execute(f"PRAGMA user_version = {sys.argv[1]}")
"""

pytestmark = pytest.mark.timeout(1200)


def two_that_do_not_fit(site: Site, node: str) -> tuple[int, int]:
    """They run until they are told to finish, and each has done something."""
    jobs = (site.submit(node, BIG, ENDLESS), site.submit(node, BIG, ENDLESS))
    site.get_on(*jobs)
    return jobs


def test_five_lines_make_nodes_that_share(site: Site) -> None:
    jobs = [site.submit(node, BIG, 8) for node in ("node1", "node2") for _ in range(2)]
    site.complete(*jobs)
    for job in jobs:
        (figures,) = site.usage(job)["gpus"].values()
        assert figures["lease_s"] > 0
    refused = site.as_user("sbatch --gpu-share=tq:5 --wrap true", check=False)
    assert "--gpu-share without a shard; add --gres=shard:1" in refused


def test_slurmctld_refuses_what_came_by_another_way(site: Site) -> None:
    """job_submit.lua, from the package's examples, where they say that it belongs."""
    examples = "/usr/share/gpu-lease/slurm-conf"
    site.head.shell(f"cp {examples}/job_submit.lua {examples}/gpu_share.lua /etc/slurm/")
    site.head.systemctl("restart", "slurmctld")
    site.await_idle()
    by_environment = "GPU_SHARE= sbatch --export=GPU_SHARE=tq:never --gres=shard:1 --wrap true"
    assert "is no value of --gpu-share" in site.as_user(by_environment, check=False)
    site.head.shell("gpu-leasectl check --controller")


def test_a_gang_on_both_gpus_of_a_node(site: Site) -> None:
    if not site.gangs:
        pytest.skip("this Slurm gives a job the shards of one GPU")
    wide = ("--gres=shard:8", "--gpu-share=tq:1")
    jobs = [site.submit("node2", BIG, 8, 50, *wide), site.submit("node2", BIG, 8)]
    site.complete(jobs[1])
    site.complete(jobs[0], gpus=2)
    assert len(site.usage(jobs[0])["gpus"]) == 2


def test_a_restart_under_load(site: Site) -> None:
    jobs = [*two_that_do_not_fit(site, "node1"), *two_that_do_not_fit(site, "node2")]
    for machine in site.machines:
        for _ in range(3):
            machine.systemctl("restart", UNIT)
    site.get_on(*jobs)
    site.finish(*jobs)
    for job in jobs:
        assert site.usage(job)["gpus"]


def test_an_upgrade_under_load(site: Site) -> None:
    jobs = [*two_that_do_not_fit(site, "node1"), *two_that_do_not_fit(site, "node2")]
    for machine in site.machines:
        pid = machine.show(UNIT, "MainPID")
        machine.shell(f"apt-get install {' '.join(machine.packages('next'))}")
        assert machine.show(UNIT, "MainPID") != pid
        assert site.status(machine)["version"] == NEXT
    site.get_on(*jobs)
    site.finish(*jobs)
    for machine in site.machines:
        machine.shell("gpu-leasectl check")


def test_a_downgrade_that_could_not_go_on_is_refused_under_load(site: Site) -> None:
    jobs = two_that_do_not_fit(site, "node1")
    pid = site.head.show(UNIT, "MainPID")
    known = site.head.run("python3", "-I", "-c", OTHER_USAGE_DB, "99000").stdout.strip()
    said = site.head.fails(f"dpkg -i {' '.join(site.head.packages('now'))}")
    site.head.run("python3", "-I", "-c", OTHER_USAGE_DB, known)
    assert f"has schema 99000, and this release knows {known}" in said
    assert "What to do: keep the newer release" in said
    assert site.head.show(UNIT, "MainPID") == pid, "what was not replaced is not started again"
    site.get_on(*jobs)
    site.finish(*jobs)


def test_usage_of_many_jobs_while_slurmdbd_is_away(site: Site) -> None:
    """What an hour makes: records pile up on the nodes and in slurmctld, and pauses grow."""
    jobs = [site.submit(node, SMALL, 2, 0) for node in ("node1", "node2") for _ in range(3)]
    site.complete(jobs[0])
    site.head.systemctl("stop", "slurmdbd")
    jobs += [site.submit(node, SMALL, 1, 0) for node in ("node1", "node2") for _ in range(10)]
    site.complete(*jobs)
    for machine in site.machines:
        machine.systemctl("restart", UNIT)
    jobs += [site.submit(node, SMALL, 1, 0) for node in ("node1", "node2") for _ in range(2)]
    site.complete(*jobs[-4:])
    site.head.systemctl("start", "slurmdbd")
    site.await_slurmdbd()
    for job in jobs:
        (figures,) = site.usage(job)["gpus"].values()
        assert figures["time_s"] > 0
    for job in jobs:
        ((state, comment),) = site.rows(job)
        assert (state, comment.count("gpu-lease:")) == ("COMPLETED", 1)


def test_a_node_reboots_in_the_middle_of_a_job(site: Site) -> None:
    lost = site.submit("node2", BIG, ENDLESS, 50, "--no-requeue", "--gres=shard:1")
    site.get_on(lost)
    # What it has used so far is on the disk within a second.
    wait_until("a saved second of the lease", lambda: leased_s(site, lost) > 2, timeout=120)
    site.other.reboot()
    site.await_idle()
    assert site.end(lost) in (["NODE_FAIL"], ["FAILED"], ["CANCELLED"])
    (figures,) = site.usage(lost)["gpus"].values()
    assert figures["lease_s"] > 1
    assert site.other.show(UNIT, "ActiveState") == "active"
    jobs = [site.submit("node2", BIG, 8) for _ in range(2)]
    site.complete(*jobs)


def leased_s(site: Site, job: int) -> float:
    """Seconds of its lease so far, on node2."""
    tenants = site.status(site.other)["tenants"]
    mine = [tenant for tenant in tenants if tenant["job_id"] == job]
    return max((used["lease_s"] for tenant in mine for used in tenant["gpus"].values()), default=0)


def test_removal_is_refused_while_jobs_share(site: Site) -> None:
    jobs = two_that_do_not_fit(site, "node2")
    said = site.other.fails("apt-get remove gpu-leased")
    assert f"jobs share GPUs of this node: {jobs[0]} {jobs[1]}." in said
    assert "What to do: drain the node" in said
    assert site.other.show(UNIT, "ActiveState") == "active"
    site.get_on(*jobs)
    site.finish(*jobs)


def test_removal_and_purge(site: Site) -> None:
    site.other.shell(f"apt-get remove {' '.join(OURS)}")
    assert site.other.run("systemctl", "is-active", UNIT, check=False).stdout.strip() == "inactive"
    plain = site.submit("node2", SMALL, 2, 0, "--gres=gpu:1")
    site.complete(plain)
    site.other.systemctl("restart", "slurmd")
    site.await_idle()
    site.other.shell(f"apt-get purge {' '.join(OURS)}")
    left = site.other.shell(
        "find / -xdev -not -path '/proc/*' -not -path '/sys/*' -not -path '/debs/*' "
        "-not -path '/var/lib/dpkg/*' -not -path '/var/log/*' -not -path '/etc/apt/*' "
        "-name '*gpu*lease*' || true"
    )
    assert left == ""
