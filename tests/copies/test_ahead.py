"""Host memory is made before the first handoff, by a daemon, a keeper and jobs that may end."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from rich.console import Console

from leased.api.client import ask_status
from leased.cli import show
from leased.cli.screen import View
from tests.cli.fake_status import names
from tests.conftest import Start
from tests.copies.keeper import Keeper
from tests.copies.node import MIB, SIZE, SWAP, copies_of, end, kept, started, status, taken, turn
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.programs import line
from tests.support.swap_programs import PROGRAM

# What is no longer needed is given back sooner.
pytestmark = pytest.mark.daemon(hurried=["leased.copies.line.KEPT_NS=5e8"])
ON = pytest.mark.parametrize("leased", ['swap_ahead = "100%"'], indirect=True)
PIECE = 8 * MIB  # of an emulated device of 256 MiB, at most

# It has memory beside the other's, and has not used the device yet.
IDLE = (
    PROGRAM
    + f"""
p = ok(d.cuMemAlloc({SIZE})); say("has it")
sys.stdin.readline()
"""
)


def idle(tenant: Start, job: int) -> subprocess.Popen[str]:
    process = tenant(job, SWAP, "-c", IDLE)
    line(process)
    assert line(process) == "has it"
    return process


def all_is_there(leased: Leased, keeper: Keeper) -> None:
    """What could have to leave of both jobs, made and counted once."""

    def there() -> bool:
        said = status(leased)
        needs = 2 * SIZE - said["devices"][0]["usable_bytes"]
        has = [
            t["ahead_bytes"] >= needs <= t["copies_bytes"] <= t["ahead_bytes"] + PIECE
            for t in said["tenants"]
        ]
        return len(has) == 2 and all(has) and kept(keeper) == said["copies"]["taken_bytes"]

    wait_until("host memory for what could have to leave, and no more", there)


@contextmanager
def stopped(keeper: Keeper) -> Iterator[None]:
    """It makes nothing meanwhile, and answers nobody."""
    os.kill(keeper.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(keeper.pid, signal.SIGCONT)


@ON
def test_it_is_there_before_anybody_waits_and_goes_when_nobody_could(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    (first, _), second = started(tenant, 1), idle(tenant, 2)
    all_is_there(leased, keeper)
    used = [figures for t in status(leased)["tenants"] for figures in t["gpus"].values()]
    assert not any(figures["handoffs"] for figures in used)
    text = io.StringIO()
    shown = show.status(ask_status(leased.admin_socket), View(names()))
    Console(file=text, width=200).print(shown)
    assert "prepared ahead of handoffs" in text.getvalue()
    end(second)
    wait_until("what nobody needs to be given back", lambda: kept(keeper) == taken(leased) == 0)
    assert turn(first) == 1
    end(first)


@ON
def test_a_daemon_that_is_killed_meanwhile_loses_and_doubles_nothing(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    with stopped(keeper):
        (first, _), second = started(tenant, 1), idle(tenant, 2)
        wait_until("memory to be asked for", lambda: taken(leased) > 0)
        leased.kill()
        leased.start()
    all_is_there(leased, keeper)
    assert turn(first) == 1
    end(first)
    end(second)
    wait_until("all of it to be given back", lambda: kept(keeper) == taken(leased) == 0)


@ON
def test_a_job_that_is_killed_meanwhile_leaves_nothing(
    tenant: Start, leased: Leased, keeper: Keeper
) -> None:
    with stopped(keeper):
        (first, pid), second = started(tenant, 1), idle(tenant, 2)
        wait_until("memory to be asked for", lambda: copies_of(leased, 1) > 0)
        os.kill(pid, signal.SIGKILL)
        first.wait()
    wait_until("its memory to be given back", lambda: not copies_of(leased, 1))
    wait_until("what nobody needs to be given back", lambda: kept(keeper) == taken(leased) == 0)
    end(second)
