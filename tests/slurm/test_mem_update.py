"""Memory that Slurm 26.05 takes back from a running job.

`scontrol update` takes it here. `sbatch --mem-update` sends the node the same message after a
while, where the cgroups are of version 2, which a private Slurm cannot have: with version 1
slurmstepd does not know what the job uses, and takes nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from leased.api.client import ask
from tests.copies.keeper import Keeper
from tests.slurm.cluster import slurm_version
from tests.slurm.processes import wait_until
from tests.slurm.test_swap import (
    ENOUGH,
    MIB,
    NO_ROOM,
    SWAP,
    Job,
    Site,
    frugal,
    swapping_site,
    tell_to_end,
)
from tests.support.machine import CGROUPS, has_controllers

CONTROLLERS = ("memory", "freezer")
BY_CGROUPS = ["PrologFlags=Contain", "ProctrackType=proctrack/cgroup", "TaskPlugin=task/cgroup"]
MARGIN = 20  # percent of what the job uses


def why_not() -> str:
    if slurm_version() < (26, 5):
        return "memory of a running job is taken back from Slurm 26.05 on"
    if not has_controllers(*CONTROLLERS):
        return f"Slurm needs {CGROUPS} with {', '.join(CONTROLLERS)} that can be written to"
    return ""


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    if reason := why_not():
        pytest.skip(reason)
    constrains = ["ConstrainRAMSpace=yes"]
    with swapping_site(slurm_conf=BY_CGROUPS, cgroup_conf=constrains, devices=1) as made:
        yield made


def of_job(pid: int, file: str) -> int:
    """A number of the memory cgroup of the job whose process it is."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            parts = path.strip("/").split("/")
            at = next(n for n, part in enumerate(parts) if part.startswith("step_"))
            return int((CGROUPS / "memory").joinpath(*parts[:at], file).read_text())
    raise AssertionError(f"{pid} has no memory cgroup")


def take_back(site: Site, job: Job, pid: int) -> None:
    """All that it does not use, but for a margin. Its step hears of it later than slurmctld."""
    before, used = (of_job(pid, f"memory.{what}_in_bytes") for what in ("limit", "usage"))
    left = used * (100 + MARGIN) // 100 // MIB
    site.slurm.run("scontrol", "update", f"jobid={job.job_id}", f"MinMemoryNode={left}")
    wait_until("less memory", lambda: of_job(pid, "memory.limit_in_bytes") < before)


def test_a_job_that_is_left_no_memory_for_copies_lives(site: Site) -> None:
    """Where they are in its own memory. The job's memory stays on the GPU, and who needs the room
    waits for its end."""
    tight = frugal(site, "tight", ENOUGH, SWAP)
    (pid,) = site.settled(tight, 200)
    take_back(site, tight, pid)
    waits = site.compute("waits", 200, steps=2)
    wait_until("it to have no room", lambda: NO_ROOM in tight.log.read_text())
    tell_to_end(tight)
    site.used(tight)
    site.used(waits)
    site.all_is_free()


def test_copies_that_the_node_keeps_need_none_of_it(site: Site) -> None:
    def said() -> dict[str, Any]:
        return ask(site.leased.admin_socket, {"op": "status"})

    with Keeper(site.leased.run_dir):
        wait_until("the daemon to find the keeper", lambda: said()["copies"]["kept"])
        tight = frugal(site, "kept", ENOUGH, SWAP)
        (pid,) = site.settled(tight, 200)
        take_back(site, tight, pid)
        used = site.used(site.compute("other", 200, steps=2))
        tell_to_end(tight)
        site.used(tight)
        assert all(one["moved_bytes"] >= 100 * MIB for one in used.values())
        assert NO_ROOM not in tight.log.read_text()
        site.all_is_free()
