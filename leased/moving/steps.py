"""Has the driver take the steps of a plan."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from leased.moving.driver import LOCK_MS, Driver, DriverFault, Lost
from leased.moving.plan import CHECKPOINTED, LOCK, LOCKED, RUNNING, TRIES, Plan, Step
from leased.processes.identity import alive, process_id

AGAIN_S = 0.2  # between tries of a step on the way back, and looks at a process
LOCK_S = LOCK_MS / 1000 + 1.0  # a lock has ended by then, also if who has asked for it is gone


async def take_all(
    drivers: Callable[[], Driver], driver: Driver, plan: Plan, old: str, new: str
) -> None:
    """Take all steps of a plan. A driver that is lost is replaced, and asked what it did."""
    async with contextlib.AsyncExitStack() as replaced:
        while (step := plan.next()) is not None:
            try:
                await driver.take(step, old, new)
                plan.done(step)
            except Lost as fault:
                plan.turn_back(str(fault))
                driver = await _another(replaced, drivers, plan, step) or driver
            except DriverFault as fault:
                if not _runs(step.pid):
                    plan.ended(step.pid)
                    continue
                plan.failed(step, str(fault))
                await asyncio.sleep(0 if plan.to_new else AGAIN_S)


async def _another(
    replaced: contextlib.AsyncExitStack, drivers: Callable[[], Driver], plan: Plan, step: Step
) -> Driver | None:
    """One that has said what became of the step that a lost driver was taking. None: none says it,
    and the process is given up."""
    for _ in range(TRIES):
        try:
            driver = await replaced.enter_async_context(drivers())
            await _look_again(driver, plan, step)
        except DriverFault:
            await asyncio.sleep(AGAIN_S)
        else:
            return driver
    plan.lost.add(step.pid)
    return None


async def _look_again(driver: Driver, plan: Plan, step: Step) -> None:
    """Lost: this driver does not say it either."""
    process = plan.processes[step.pid]
    before, most_s = process.state, LOCK_S if step.what == LOCK else 0.0
    await look_again(driver, plan, step.pid, asyncio.get_running_loop().time() + most_s)
    if step.crosses and before == CHECKPOINTED and process.state == LOCKED:
        process.away = not process.away


async def look_again(driver: Driver, plan: Plan, pid: int, until: float) -> None:
    """Note the state of a process, or that it has ended. until: as state_at_rest(). Lost: this
    driver does not say it."""
    try:
        plan.processes[pid].state = await state_at_rest(driver, pid, until)
    except Lost:
        raise
    except DriverFault:
        plan.ended(pid)


async def state_at_rest(driver: Driver, pid: int, until: float) -> str:
    """The state of a process of which somebody who is gone may have asked a lock: that goes on
    without it, and ends by `until` on the loop's clock. DriverFault: as Driver.state."""
    clock = asyncio.get_running_loop().time
    state = await driver.state(pid)
    while state == RUNNING and clock() < until:
        await asyncio.sleep(AGAIN_S)
        state = await driver.state(pid)
    return state


def _runs(pid: int) -> bool:
    process = process_id(pid)
    return process is not None and alive(process)


def lost(plan: Plan) -> str:
    """In words, the processes that the driver does not bring back."""
    if not plan.lost:
        return ""
    pids = ", ".join(map(str, sorted(plan.lost)))
    return f"; the driver does not bring back process {pids}: cancel the job"
