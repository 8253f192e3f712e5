"""The driver's part: processes are checkpointed by it, and restored (leased/moving/driver.py)."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from leased.base.errors import Refused
from leased.moving.driver import Driver, DriverFault
from leased.moving.plan import CHECKPOINT, CHECKPOINTED, LOCK, LOCKED, RESTORE, UNLOCK, Step

TRIES, AGAIN_S = 3, 0.2
T = TypeVar("T")
Said = dict[str, Any]  # what the driver has said at first


def _asked(work: Callable[..., Awaitable[T]]) -> Callable[..., T]:
    """Do it with a driver. Refused: the driver does not do it, or has no checkpoints."""

    async def done(*given: Any) -> T:
        async with Driver() as driver:
            return await work(driver, await driver.begin(), *given)

    @functools.wraps(work)
    def ask(*given: Any) -> T:
        try:
            return asyncio.run(done(*given))
        except DriverFault as fault:
            raise Refused(f"the driver's checkpoint: {fault}") from None

    return ask


@_asked
async def uuids(_: Driver, said: Said) -> list[str]:
    """Of all GPUs of this machine, in hex digits."""
    return list(said["uuids"])


@_asked
async def checkpoint(driver: Driver, _: Said, pids: Iterable[int]) -> None:
    """Take all that the driver has for these processes off the GPU. Refused: it cannot, and
    back() is to be called."""
    for what in (LOCK, CHECKPOINT):
        for pid in pids:
            await driver.take(Step(pid, what), "", "")


@_asked
async def back(driver: Driver, _: Said, pids: Iterable[int]) -> list[int]:
    """Have them all run again where they were. Returns those that the driver does not bring back;
    one that has ended is none of them."""
    return [pid for pid in pids if not await _brought_back(driver, pid)]


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


@_asked
async def restore_here(
    driver: Driver, _: Said, pids: Iterable[int], before: list[str], old: str, new: str
) -> None:
    """Restore processes of another machine on a GPU of this one; see Driver.restore_here.
    Refused: the driver cannot."""
    for pid in pids:
        if (before, old) == ([], new) or old == new:
            await driver.take(Step(pid, RESTORE), "", "")
        else:
            await driver.restore_here(pid, before, old, new)
    for pid in pids:
        await driver.take(Step(pid, UNLOCK), "", "")
