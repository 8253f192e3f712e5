"""The keeper of copies ends and comes back under systemd, while a job's memory lies there."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.copies.node import JOB, MIB, SIZE, SWAP, end, pages_of, turn
from tests.emugpu.programs import line
from tests.slurm.processes import wait_until
from tests.systemd.node import COPIES, UNITS, Node

FIRST, SECOND = 9001, 9002
# What two jobs have beyond the whole device: so much has to leave it, whatever contexts take there.
BEYOND = 2 * SIZE - 256 * MIB


def keeper_of(node: Node) -> int:
    """The keeper, as the container counts; 0 while there is none."""
    return int(node.show(COPIES, "MainPID"))


def has(node: Node) -> int:
    """Bytes that the keeper has."""
    folder = node.container.root / f"proc/{keeper_of(node)}/fd"
    return sum(pages_of(file) for file in folder.iterdir())


def copies_of(node: Node, job: int) -> int:
    return int(node.tenant(job).get("copies_bytes", 0))


def started(node: Node, number: int) -> subprocess.Popen[str]:
    """A job with more than half of the device's memory."""
    job = node.job(number, SWAP, JOB)
    assert line(job).strip().isdigit()
    assert line(job).strip() == "has it"
    return job


def kill(node: Node) -> None:
    node.systemctl("kill", "--signal=KILL", "--kill-who=main", COPIES)


def restart(node: Node) -> None:
    node.systemctl("restart", COPIES)


def kill_and_restart_everything(node: Node) -> None:
    kill(node)
    node.systemctl("restart", *UNITS)


def restart_everything(node: Node) -> None:
    node.systemctl("restart", *UNITS)


@pytest.mark.parametrize("ends", [kill, restart, restart_everything, kill_and_restart_everything])
def test_the_next_keeper_has_what_was_there(node: Node, ends: Callable[[Node], None]) -> None:
    first, second = started(node, FIRST), started(node, SECOND)
    jobs = FIRST, SECOND
    wait_until("both to have enough", lambda: all(copies_of(node, n) >= BEYOND for n in jobs))
    keeper = keeper_of(node)
    # The daemon counts what it has asked the keeper for, which the keeper makes after that.
    wait_until("the keeper to have made it", lambda: has(node) >= len(jobs) * BEYOND)
    ends(node)
    wait_until("another keeper", lambda: keeper_of(node) not in (0, keeper))
    wait_until("the daemon to have it", lambda: bool(node.status()["copies"]["kept"]))
    assert has(node) >= len(jobs) * BEYOND  # what was made beyond that may be given back meanwhile
    assert [turn(job) for job in (first, second, first)] == [1, 1, 2]
    for job in (first, second):
        end(job)
    wait_until("all of it to be given back", lambda: has(node) == 0)
    wait_until("systemd to keep none", lambda: node.show(COPIES, "NFileDescriptorStore") == "0")
