"""Has the driver take the steps of a plan."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from leased.moving.driver import Driver, DriverFault, Lost
from leased.moving.plan import CHECKPOINTED, LOCKED, Plan
from leased.processes.identity import alive, process_id

AGAIN_S = 0.2  # between tries of a step on the way back


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
                driver = await replaced.enter_async_context(drivers())
                await _look_again(driver, plan, step.pid, crosses=step.crosses)
            except DriverFault as fault:
                if not _runs(step.pid):
                    plan.ended(step.pid)
                    continue
                plan.failed(step, str(fault))
                await asyncio.sleep(0 if plan.to_new else AGAIN_S)


async def _look_again(driver: Driver, plan: Plan, pid: int, *, crosses: bool) -> None:
    """What became of the step that a lost driver was taking with a process."""
    process = plan.processes[pid]
    try:
        state = await driver.state(pid)
    except DriverFault:
        plan.ended(pid)
        return
    if crosses and process.state == CHECKPOINTED and state == LOCKED:
        process.away = not process.away
    process.state = state


def _runs(pid: int) -> bool:
    process = process_id(pid)
    return process is not None and alive(process)


def lost(plan: Plan) -> str:
    """In words, the processes that the driver does not bring back."""
    if not plan.lost:
        return ""
    pids = ", ".join(map(str, sorted(plan.lost)))
    return f"; the driver does not bring back process {pids}: cancel the job"
