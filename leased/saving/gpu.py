"""The driver's part: processes are checkpointed by it, and restored (leased/moving/driver.py)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import TypeVar

from leased.base.errors import Refused
from leased.moving.driver import Driver, DriverFault
from leased.moving.plan import CHECKPOINT, CHECKPOINTED, LOCK, LOCKED, RESTORE, UNLOCK, Step

TRIES, AGAIN_S = 3, 0.2
T = TypeVar("T")


def _with_driver(work: Callable[[Driver], Awaitable[T]]) -> T:
    """Refused: the driver does not do it."""

    async def done() -> T:
        async with Driver() as driver:
            return await work(driver)

    try:
        return asyncio.run(done())
    except DriverFault as fault:
        raise Refused(f"the driver's checkpoint: {fault}") from None


def uuids() -> list[str]:
    """Of all GPUs of this machine, in hex digits. Refused: the driver has no checkpoints."""

    async def ask(driver: Driver) -> list[str]:
        return list((await driver.begin())["uuids"])

    return _with_driver(ask)


def checkpoint(pids: Iterable[int]) -> None:
    """Take all that the driver has for these processes off the GPU. Refused: it cannot, and
    back() is to be called."""

    async def take(driver: Driver) -> None:
        await driver.begin()
        for what in (LOCK, CHECKPOINT):
            for pid in pids:
                await driver.take(Step(pid, what), "", "")

    _with_driver(take)


def back(pids: Iterable[int]) -> list[int]:
    """Have them all run again where they were. Returns those that the driver does not bring back;
    one that has ended is none of them."""

    async def restore(driver: Driver) -> list[int]:
        await driver.begin()
        return [pid for pid in pids if not await _brought_back(driver, pid)]

    return _with_driver(restore)


async def _brought_back(driver: Driver, pid: int) -> bool:
    for _ in range(TRIES):
        try:
            state = await driver.state(pid)
        except DriverFault:
            return True  # it has ended
        if state not in (LOCKED, CHECKPOINTED):
            return True
        with suppress(DriverFault):
            if state == CHECKPOINTED:
                await driver.take(Step(pid, RESTORE), "", "")
            await driver.take(Step(pid, UNLOCK), "", "")
            return True
        await asyncio.sleep(AGAIN_S)
    return False


def restore_here(pids: Iterable[int], before: list[str], old: str, new: str) -> None:
    """Restore processes of another machine on a GPU of this one; see Driver.restore_here.
    Refused: the driver cannot."""

    async def restore(driver: Driver) -> None:
        await driver.begin()
        for pid in pids:
            if (before, old) == ([], new) or old == new:
                await driver.take(Step(pid, RESTORE), "", "")
            else:
                await driver.restore_here(pid, before, old, new)
        for pid in pids:
            await driver.take(Step(pid, UNLOCK), "", "")

    _with_driver(restore)
