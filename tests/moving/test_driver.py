"""The driver's process checkpoint, asked by one child after the other."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from leased.base import children
from leased.moving.driver import CHILD, Driver
from leased.moving.plan import CHECKPOINT, LOCK, RESTORE, UNLOCK, Step
from tests.emugpu.server import EmulatedGpu
from tests.support.programs import SET_UP, line, output, tell

pytestmark = pytest.mark.emulated(model="emu-h200-medium", devices=2)
PROGRAM = (
    SET_UP
    + """
say("ready")
sys.stdin.readline()
say(bytes(ok(d.cuDeviceGetUuid(0)).bytes).hex()[-2:])
"""
)


def test_a_child_takes_over_wherever_the_one_before_has_ended(
    emulated_gpu: EmulatedGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a process has to be restored on the other GPU: nothing was asked of it before."""
    for name, text in emulated_gpu.env.items():
        monkeypatch.setenv(name, text)
    pipe, root = subprocess.PIPE, Path(__file__).parents[2]
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, text=True, cwd=root
    )
    uuids = [device["uuid"] for device in emulated_gpu.stats()["devices"]]

    async def take(what: str, *, crosses: bool = False) -> None:
        async with Driver() as driver:
            await driver.take(Step(program.pid, what, crosses), *uuids)

    assert line(program) == "ready"
    for step in (LOCK, CHECKPOINT):
        asyncio.run(take(step))
    asyncio.run(take(RESTORE, crosses=True))
    asyncio.run(take(UNLOCK))
    tell(program)
    assert line(program) == "01"
    output(program)


def test_a_child_whose_daemon_has_ended_in_its_step_says_nothing() -> None:
    """Its answer reaches nobody, which is no fault for the journal."""
    pipe = subprocess.PIPE
    with subprocess.Popen(children.python(CHILD), stdin=pipe, stdout=pipe, stderr=pipe) as child:
        assert child.stdout
        child.stdout.close()
        child.stdout = None
        assert child.communicate(b'{"op": "begin"}\n')[1] == b""
    assert child.returncode == 0
