"""A daemon ended at any moment of a move: the next one makes driver, process and books agree, and
the job works on. A real daemon and a real process; what was done until the end, the test does."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import shutil
import sqlite3
import subprocess
import termios
from array import array
from pathlib import Path

import pytest

from leased.api.client import ask
from leased.base import children
from leased.cli.subcommand import ExitStatus
from leased.moving.driver import CHILD, LOCK_MS, Driver
from leased.moving.mark import NAME, Mark, MarkFile
from leased.moving.plan import CHECKPOINT, LOCK, RESTORE, UNLOCK, Step
from leased.processes import procfs
from leased.processes.identity import ProcessId, process_id
from tests.conftest import Start
from tests.emugpu.server import EmulatedGpu
from tests.moving.test_moves import PAIR, PROGRAM, move, works
from tests.slurm.leased import Leased
from tests.slurm.processes import wait_until
from tests.support.children import children_of
from tests.support.programs import line, output

pytestmark = [
    pytest.mark.emulated(model="emu-h200-medium", devices=2),
    pytest.mark.daemon(hurried=["leased.moving.steps.LOCK_S=0.5"]),
]
TO_THE_OTHER = (LOCK, CHECKPOINT, RESTORE, UNLOCK)
JOB = 1
ENDS_SLOWLY = (
    PROGRAM
    + """
ok(spin(60_000_000_000)); say("works")  # until the test ends it
ok(d.cuCtxSynchronize()); check(p, n, turn); say("right")
"""
)


class Node:
    """A job on the first GPU, and a daemon that ends and starts again."""

    def __init__(self, tenant: Start, leased: Leased, program: str):
        self.leased = leased
        self.state = leased.prefix / "state"
        self.job = tenant(JOB, "tq:1,memory:swap", "-c", program, "16")
        assert line(self.job) == "ready"
        assert works(self.job) == "00"
        (self.pid,) = children_of(self.job.pid)
        devices = ask(leased.admin_socket, {"op": "status"})["devices"]
        self.uuids = [str(device["uuid"]) for device in devices]

    def resident(self) -> dict[str, int]:
        """Its bytes on each GPU, as the daemon has heard from the process."""
        status = ask(self.leased.admin_socket, {"op": "status"})
        (told,) = (one["resident_bytes"] for one in status["tenants"])
        return {uuid: size for uuid, size in told.items() if size}

    def moves(self, gpu: int) -> None:
        wait_until("the daemon to hear from the process", lambda: bool(self.resident()))
        assert move(self.leased, JOB, gpu) == ExitStatus.DONE
        assert works(self.job) == f"0{gpu}"

    def keeps(self) -> Path:
        """The daemon ends; a copy of all that it knows."""
        self.leased.kill()
        kept = self.state.with_name("kept")
        shutil.copytree(self.state, kept)
        return kept

    def knows(self, kept: Path) -> None:
        shutil.rmtree(self.state)
        kept.rename(self.state)

    def takes(self, *steps: str, to: int = 1) -> None:
        """The driver takes these steps with the process."""

        async def take() -> None:
            async with Driver() as driver:
                await driver.begin()
                for what in steps:
                    step = Step(self.pid, what, crosses=what == RESTORE)
                    await driver.take(step, self.uuids[1 - to], self.uuids[to])

        asyncio.run(take())

    def marks(self, asker: ProcessId | None = None) -> None:
        """As a daemon that moves it to the second GPU. asker: what asks the driver for it."""
        process = process_id(self.pid)
        assert process
        MarkFile(self.state).write(Mark(JOB, self.uuids[0], self.uuids[1], (process,), asker))

    def starts(self) -> None:
        self.leased.start()
        self.recovers()

    def sees_mark(self) -> None:
        said = "in the middle of a move"
        wait_until("the daemon to see it", lambda: said in self.leased.log.read_text())

    def recovers(self) -> None:
        wait_until("the mark to be removed", lambda: not (self.state / NAME).exists())

    def is_on(self, gpu: int) -> None:
        """Driver, process and books say so, and it works and can move."""
        assert works(self.job) == f"0{gpu}"
        wait_until("the daemon to hear from the process", lambda: bool(self.resident()))
        assert [*self.resident()] == [self.uuids[gpu]]
        self.moves(1 - gpu)
        output(self.job)


@pytest.fixture
def node(
    tenant: Start,
    leased: Leased,
    emulated_gpu: EmulatedGpu,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Node:
    """Parameter: the job's program, if it is another one."""
    for name, value in emulated_gpu.env.items():
        monkeypatch.setenv(name, value)  # for the test's own calls of the driver
    return Node(tenant, leased, getattr(request, "param", PROGRAM))


@pytest.mark.parametrize("taken", [1, 2, 3])
def test_a_step_that_goes_on_without_the_daemon_is_waited_for(node: Node, taken: int) -> None:
    """What asks the driver ends when the driver has answered it."""
    node.leased.kill()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as asker:
        node.marks(process_id(asker.pid))
        node.leased.start()
        node.sees_mark()
        assert (node.state / NAME).exists()
        node.takes(*TO_THE_OTHER[:taken])
        assert (node.state / NAME).exists()
        asker.communicate()
    node.recovers()
    node.is_on(0)


def has_asked(asker: subprocess.Popen[bytes]) -> bool:
    """Whether it has read what it is to ask, and waits for the driver."""
    assert asker.stdin
    unread = array("i", [0])
    fcntl.ioctl(asker.stdin, termios.FIONREAD, unread)
    seen = procfs.stat(asker.pid)
    return not unread[0] and seen is not None and seen.state == "S"


@pytest.mark.daemon
@pytest.mark.parametrize("node", [ENDS_SLOWLY], indirect=True)
def test_a_lock_that_goes_on_though_who_has_asked_for_it_is_killed_is_undone(
    node: Node, emulated_gpu: EmulatedGpu
) -> None:
    """It waits for a kernel."""
    job = node.job
    assert job.stdin
    job.stdin.close()
    job.stdin = None
    assert line(job) == "works"
    node.leased.kill()
    pipe = subprocess.PIPE
    with subprocess.Popen(children.python(CHILD), stdin=pipe, stdout=pipe) as asker:
        assert asker.stdin
        request = {"op": LOCK, "pid": node.pid, "patience_ms": LOCK_MS}
        asker.stdin.write(json.dumps(request).encode() + b"\n")
        asker.stdin.flush()
        wait_until("the driver to be asked", lambda: has_asked(asker))
        asker.kill()
    node.marks()
    node.leased.start()
    node.sees_mark()
    assert (node.state / NAME).exists()
    emulated_gpu.end_spins()
    node.recovers()
    assert output(job) == "right\n"


@pytest.mark.daemon  # which waits for 11 s
def test_a_process_does_not_stand_still_while_another_one_might_still_be_locked(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in emulated_gpu.env.items():
        monkeypatch.setenv(name, value)
    job = tenant(JOB, "tq:1,memory:swap", "-c", PAIR, PROGRAM, "16")
    assert line(job) == "ready ready"
    (starter,) = children_of(job.pid)
    pids = children_of(starter)
    devices = ask(leased.admin_socket, {"op": "status"})["devices"]
    old, new = (str(device["uuid"]) for device in devices)
    leased.kill()

    async def take() -> None:
        async with Driver() as driver:
            await driver.begin()
            await driver.take(Step(pids[0], LOCK), old, new)

    asyncio.run(take())
    both = tuple(filter(None, map(process_id, pids)))
    marks = MarkFile(leased.prefix / "state")
    marks.write(Mark(JOB, old, new, both))
    leased.start()
    assert works(job) == "00 00"
    assert marks.read(), "the other one is waited for still"
    wait_until("the mark to be removed", lambda: marks.read() is None)
    assert move(leased, JOB, 1) == ExitStatus.DONE
    output(job)


@pytest.mark.parametrize("taken", [*range(5), "back"])
def test_what_the_books_have_not_heard_of_is_taken_back(node: Node, taken: int | str) -> None:
    """back: it had arrived, and was on its way back."""
    back = (LOCK, CHECKPOINT, RESTORE, CHECKPOINT)
    node.leased.kill()
    node.takes(*(back if taken == "back" else TO_THE_OTHER[: int(taken)]))
    node.marks()
    node.starts()
    node.is_on(0)


def test_what_the_books_have_heard_of_stays(node: Node) -> None:
    node.moves(1)
    node.leased.kill()
    node.marks()
    node.starts()
    node.is_on(1)


def test_a_process_that_was_told_too_early_is_told_again(node: Node) -> None:
    before = node.keeps()
    node.leased.start()
    node.moves(1)
    node.leased.kill()
    node.knows(before)
    node.marks()
    node.starts()
    node.is_on(0)


def test_a_process_that_was_not_told_yet_is_told(node: Node) -> None:
    node.moves(1)
    after = node.keeps()
    node.leased.start()
    node.moves(0)
    node.leased.kill()
    node.takes(*TO_THE_OTHER)
    node.knows(after)
    node.marks()
    node.starts()
    node.is_on(1)


def test_a_move_that_the_disk_does_not_take_is_taken_back_by_the_next_daemon(node: Node) -> None:
    mark = node.state / NAME
    with contextlib.closing(sqlite3.connect(node.state / "usage.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")  # from here on nobody else can write
        node.moves(1)
        assert mark.exists()
        node.leased.kill()
    node.starts()
    node.is_on(0)
