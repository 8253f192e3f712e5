"""Carriers are lent to jobs, and to those whose carrier has ended: one at a time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Callable

import pytest
from _gpulease import lib

from leased.leasing.tenant import Tenant
from leased.moving import carriers, driver
from leased.moving.carriers import Carriers
from leased.moving.driver import DriverFault
from tests.moving.test_drain import Scene

STAYS = "import sys; print('ready', flush=True); sys.stdin.read()"
# Each line that it hears is written down; questions are answered.
HEARS = """
import os, sys
print('ready', flush=True)
for line in sys.stdin:
    os.write(HEARD, line.encode())
    if line == '?\\n': print('works', flush=True)
"""
FAILS = "print('nothing of it works', flush=True)"
NOTHING = "pass"


class Lent:
    """The carriers of two processes of a job. at_most: how many there were at once."""

    def __init__(self) -> None:
        self.scene = Scene()
        for process in self.scene.processes:
            process.carries = True
        self.tenant: Tenant = self.scene.tenant
        self.carriers = Carriers(self.scene.leases)
        self.ours = self.scene.leases.gpus.ours
        self.at_most = 0

    def told(self) -> list[int]:
        return [process.told.count(lib.GL_CARRIER) for process in self.scene.processes]

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.at_most = max(self.at_most, len(self.ours))
            await asyncio.sleep(0.005)

    async def end_all(self) -> None:
        for pid in self.ours:
            os.kill(pid, signal.SIGKILL)
        await self.until(lambda: not self.ours)

    async def end(self) -> None:
        """Nothing runs afterwards, also of what looks after those that have just ended."""
        await self.end_all()
        await self.carriers.end()


@pytest.fixture
def lent(monkeypatch: pytest.MonkeyPatch) -> Lent:
    monkeypatch.setattr(carriers, "CHILD", STAYS)
    monkeypatch.setattr(carriers, "AGAIN_S", 0.01)
    return Lent()


async def test_each_process_of_the_job_has_an_end(lent: Lent) -> None:
    await lent.carriers.lend(lent.tenant, [], 1)
    assert lent.told() == [1, 1]
    assert lent.carriers.carries(lent.tenant)
    assert len(lent.ours) == 1
    await lent.end()
    assert not lent.carriers.carries(lent.tenant)


@pytest.mark.parametrize(
    ("child", "why"), [(FAILS, "nothing of it works"), (NOTHING, "it has ended")]
)
async def test_one_that_cannot_carry_says_why(
    lent: Lent, monkeypatch: pytest.MonkeyPatch, child: str, why: str
) -> None:
    monkeypatch.setattr(carriers, "CHILD", child)
    with pytest.raises(DriverFault, match=why):
        await lent.carriers.lend(lent.tenant, [], 1)
    assert lent.told() == [0, 0]
    await lent.until(lambda: not lent.carriers.carries(lent.tenant))


async def test_whoever_says_a_hundred_times_that_it_has_ended_gets_one(lent: Lent) -> None:
    for _ in range(100):
        for process in lent.scene.processes:
            lent.scene.leases.clients.on_stranded(lent.tenant, process)
    await lent.until(lambda: lent.told() == [1, 1])
    for process in lent.scene.processes:  # while there is one
        lent.scene.leases.clients.on_stranded(lent.tenant, process)
    await lent.end_all()
    await lent.until(lambda: lent.told() == [2, 2])
    assert lent.at_most == 1
    await lent.end()
    assert not lent.carriers.carries(lent.tenant)


async def test_stranded_processes_are_lent_one_when_it_works_again(
    lent: Lent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(carriers, "CHILD", FAILS)
    lent.scene.leases.clients.on_stranded(lent.tenant, lent.scene.processes[1])
    await lent.until(lambda: "nothing of it works" in caplog.text)
    monkeypatch.setattr(carriers, "CHILD", STAYS)
    await lent.until(lambda: lent.told() == [0, 1])
    await lent.end()


async def test_a_job_that_ends_meanwhile_needs_none(lent: Lent) -> None:
    lent.scene.leases.clients.on_stranded(lent.tenant, lent.scene.processes[0])
    for process in lent.scene.processes:
        lent.scene.leases.clients.detach(lent.tenant, process)
    await lent.until(lambda: not lent.carriers.carries(lent.tenant))
    assert lent.told() == [0, 0]


async def test_a_process_that_takes_nothing_now_is_lent_another_one_later(
    lent: Lent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says but once that its carrier has ended, and its memory is nowhere else."""
    monkeypatch.setattr(carriers, "SEND_S", 0.01)
    busy = lent.scene.processes[0]
    takes = busy.send_file
    monkeypatch.setattr(busy, "send_file", lambda *_: False)
    for process in lent.scene.processes:
        lent.scene.leases.clients.on_stranded(lent.tenant, process)
    await lent.until(lambda: lent.told() == [0, 1])
    monkeypatch.setattr(busy, "send_file", takes)
    await lent.end_all()  # as it does when the one that it serves has all back
    await lent.until(lambda: lent.told() == [1, 1])
    await lent.end()
    assert not lent.carriers.carries(lent.tenant)


async def test_a_daemon_without_descriptors_lends_one_when_it_has_some(
    lent: Lent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def none(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patched:
        patched.setattr("leased.moving.carriers.socket.socketpair", none)
        with pytest.raises(DriverFault, match="Too many open files"):
            await lent.carriers.lend(lent.tenant, [], 1)
        lent.scene.leases.clients.on_stranded(lent.tenant, lent.scene.processes[1])
        await lent.until(lambda: "Too many open files" in caplog.text)
    await lent.until(lambda: lent.told() == [0, 1])
    await lent.end()


async def test_one_that_hangs_is_ended(
    lent: Lent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its job would stand still for as long as it does."""
    monkeypatch.setattr(carriers, "ASK_S", 0.01)
    monkeypatch.setattr(carriers, "ANSWER_S", 0.01)
    await lent.carriers.lend(lent.tenant, [], 1)
    await lent.until(lambda: not lent.carriers.carries(lent.tenant))
    assert "hangs" in caplog.text


async def test_one_that_gets_on_is_let_be_and_hears_when_the_move_is_over(
    lent: Lent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(carriers, "ASK_S", 0.01)
    heard, hears = os.pipe()
    os.set_blocking(heard, False)
    start = driver.start
    monkeypatch.setattr(carriers, "CHILD", f"HEARD = {hears}\n{HEARS}")
    monkeypatch.setattr(
        driver, "start", lambda *command, pass_fds: start(*command, pass_fds=[*pass_fds, hears])
    )
    said = b""

    def has(line: bytes, times: int) -> bool:
        nonlocal said
        with contextlib.suppress(BlockingIOError):
            said += os.read(heard, 1000)
        return said.count(line) >= times

    await lent.carriers.lend(lent.tenant, [], 1)
    await lent.until(lambda: has(b"?\n", 3))
    assert lent.carriers.carries(lent.tenant)
    lent.carriers.bring_back(lent.tenant)
    await lent.until(lambda: has(b"over\n", 1))
    await lent.end()
    os.close(heard)
    os.close(hears)
