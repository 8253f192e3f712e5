"""gpu-lease-placer's unit, started as docs/admin.md says, on a host that has slurmctld and no GPU.

Run by `make test-cluster`. node1 has slurmctld and the users, and takes no jobs; node2 shares GPUs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

import pytest

from tests.cluster.conftest import five_lines
from tests.cluster.site import Site
from tests.docs import documents
from tests.slurm.processes import wait_until

ADMIN = "docs/admin.md"
UNIT = "gpu-lease-placer.service"
SMALL, ENDLESS = 8, 1_000_000  # MiB, steps
APART = ("--gres=shard:1", "--gpu-share=anti-affinity:apart")
THERE = "a job with anti-affinity:apart is there"
# What its unit gives back when it ends may begin so soon; who waits for it begins later.
GIVEN_BACK_S = 20


@pytest.fixture(scope="module")
def placed(bare: Site) -> Site:
    install, *others = five_lines()
    for line in (install, *others):
        bare.other.shell(line)
    # A host where jobs are submitted needs the plugin and its line; slurmctld's needs two files.
    bare.head.shell("apt install ./now/slurm-spank-gpu-share_*.deb")
    bare.head.shell(next(line for line in others if line.startswith("ln -s")))
    for name in ("job_submit.lua", "gpu_share.lua"):
        bare.head.shell(f"cp /usr/share/gpu-lease/slurm-conf/{name} /etc/slurm/")
    bare.head.shell("scontrol reconfigure")
    for line in documents.section(ADMIN, "Place jobs with labels"):
        print(bare.head.shell(f"cd now && {line}"))
    bare.await_idle()
    return bare


def submit(site: Site) -> int:
    return site.submit("node2", SMALL, ENDLESS, 50, *APART)


def comment(site: Site, job: int) -> str:
    return site.head.run("squeue", "-h", "-j", str(job), "-o", "%k").stdout.strip()


def begins_at(site: Site, job: int) -> int:
    """In seconds since 1970."""
    show = ("scontrol", "show", "job", "-o", str(job))
    said = site.head.run(*show, env={"SLURM_TIME_FORMAT": "%s"}).stdout
    found = re.search(r" EligibleTime=(\d+) ", said)
    assert found, said
    return int(found[1])


def await_waiting(site: Site, job: int) -> None:
    """Until it says why it waits. It must not have begun."""

    def decided() -> bool:
        return THERE in comment(site, job) or site.field(job, "JobState") != "PENDING"

    wait_until(f"job {job} to wait", decided)
    assert site.field(job, "JobState") == "PENDING", site.output(job)


def one_runs_and_one_waits(site: Site) -> tuple[int, int]:
    first = submit(site)
    site.get_on(first)
    second = submit(site)
    await_waiting(site, second)
    return first, second


def follow_each_other(site: Site, first: int, second: int) -> None:
    """The second begins when the first has ended, and nothing of the placer is left with it."""
    site.finish(first)
    site.get_on(second)
    assert "gpu-lease-placer" not in comment(site, second)
    site.finish(second)


def test_the_service_has_no_more_rights_than_slurm_s_user(placed: Site) -> None:
    assert placed.head.show(UNIT, "ActiveState") == "active"
    pid = placed.head.show(UNIT, "MainPID")
    assert placed.head.run("ps", "-o", "user=", "-p", pid).stdout.strip() == "slurm"
    assert "placing jobs" in placed.head.show(UNIT, "StatusText")
    assert "gpu-lease-placer runs" in placed.head.shell("gpu-leasectl check --controller")


def test_a_job_waits_for_its_place_and_then_computes(placed: Site) -> None:
    follow_each_other(placed, *one_runs_and_one_waits(placed))


def kill(site: Site) -> None:
    site.head.run("kill", "-9", site.head.show(UNIT, "MainPID"))


def restart(site: Site) -> None:
    site.head.systemctl("restart", UNIT)


@pytest.mark.parametrize("end", [kill, restart])
def test_a_placer_that_follows_takes_over_who_waits(
    placed: Site, end: Callable[[Site], None]
) -> None:
    first, second = one_runs_and_one_waits(placed)
    before = placed.head.show(UNIT, "MainPID")
    end(placed)

    def is_back() -> bool:
        # "0": its unit gives jobs back, which comes before the next one is started.
        is_new = placed.head.show(UNIT, "MainPID") not in ("0", before)
        return is_new and placed.head.show(UNIT, "ActiveState") == "active"

    def is_put_off() -> bool:
        return begins_at(placed, second) > time.time() + 2 * GIVEN_BACK_S

    wait_until("systemd to start the placer again", is_back, timeout=180)
    wait_until("it to put the job off again", is_put_off)
    await_waiting(placed, second)
    follow_each_other(placed, first, second)


def test_stopped_it_gives_back_who_waits_and_the_node_refuses_them(placed: Site) -> None:
    first, second = one_runs_and_one_waits(placed)
    placed.head.systemctl("disable", "--now", UNIT)
    assert placed.end(second) == ["FAILED"]
    assert THERE in placed.output(second)
    placed.finish(first)
    assert placed.head.show(UNIT, "ActiveState") == "inactive"
