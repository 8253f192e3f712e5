"""After a daemon that ended in mid-move: driver, processes and books are made to agree.

The books are what the store had: a move is in them before its processes are told, and before its
mark is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace

from leased.base.words import count
from leased.gpus import nvml_answers
from leased.gpus.nvml import Nvml, Silent
from leased.leasing.clients import Has
from leased.leasing.leases import Leases
from leased.leasing.tenant import Client, Tenant
from leased.moving import steps
from leased.moving.device_access import DeviceAccess
from leased.moving.driver import STEP_S, Driver, DriverFault, Lost
from leased.moving.mark import Mark, MarkFile
from leased.moving.plan import CHECKPOINTED, LOCKED, RESTORE, RUNNING, TRIES, Plan, Process, Step
from leased.processes.identity import ProcessId, alive
from leased.wire import daemon_messages

log = logging.getLogger("gpu-leased")

LOOK_S = 0.05  # between looks whether who asked the driver has ended


class Recovery:
    """run() brings the processes that a former daemon has left between two GPUs to the one where
    the books have their job, and closes the device files that it has left open to jobs which are
    elsewhere."""

    def __init__(
        self,
        leases: Leases,
        nvml: Nvml,
        mark: MarkFile,
        access: DeviceAccess,
        driver: Callable[[], Driver],
    ):
        self._leases = leases
        self._nvml = nvml
        self._file = mark
        self._access = access
        self._driver = driver
        self._former = mark.read()
        leases.clients.on_came = self._came

    async def run(self) -> None:
        mark = self._former
        living = [process for process in mark.processes if alive(process)] if mark else []
        if mark is not None and living:
            log.warning(
                "gpu-leased ended in the middle of a move: %s may be between two GPUs, and goes "
                "to %s",
                *(count(len(living), "process"), self._ends(mark)[0]),
            )
            await self.bring_back(mark, living)
        elif mark is not None:
            self._file.remove()
        try:
            self._access.sweep(self._minors)
        except OSError as fault:
            log.error("device files of jobs that were moved: %s", fault)

    def _came(self, tenant: Tenant, client: Client, memory: Has) -> Has:
        """A process has connected, with what it says it has on each GPU. If a former daemon has
        told it of a move that is taken back, or ended before it did, it is told which GPU it is
        on. Returns what it has by that."""
        mark = self._former
        if mark is None or client.process not in mark.processes or len(tenant.gang) != 1:
            return memory
        home, other = self._ends(mark)
        if tenant.gang != (home,) or home in memory or other not in memory:
            return memory
        client.send(daemon_messages.moved(other, home))
        client.arriving = home
        return {home if uuid == other else uuid: has for uuid, has in memory.items()}

    def _ends(self, mark: Mark) -> tuple[str, str]:
        """The GPU on which the job is by the books, and the other one."""
        tenant = self._leases.tenants.get(mark.job_id)
        has_moved = tenant is not None and tenant.gang[:1] == (mark.new,)
        return (mark.new, mark.old) if has_moved else (mark.old, mark.new)

    def _minors(self, job_id: int) -> list[int]:
        """Of the GPUs on which a job is."""
        tenant = self._leases.tenants.get(job_id)
        return [self._leases.gpus[uuid].minor for uuid in (tenant.gang if tenant else ())]

    async def bring_back(self, mark: Mark, living: list[ProcessId]) -> bool:
        """Bring these processes to the GPU of the books, and remove the mark. False: not all of
        them are there."""
        home, other = self._ends(mark)
        await self._until_ended(mark.asker)
        for tries_left in reversed(range(TRIES)):
            try:
                plan = await self._taken_back(mark, living, home, other)
                break
            except (DriverFault, Silent, nvml_answers.Unsound) as fault:
                if isinstance(fault, Lost) and tries_left:
                    continue
                log.error("they cannot be brought back: %s; cancel their job", fault)
                return False
        if plan.lost:
            log.error("not all could be brought back%s", steps.lost(plan))
            return False
        self._file.remove()
        return True

    async def _taken_back(self, mark: Mark, living: list[ProcessId], home: str, other: str) -> Plan:
        """What has become of them. Lost: who asks the driver has ended."""
        async with self._driver() as driver:
            await driver.begin()
            with contextlib.suppress(OSError):  # it is on the disk all the same
                self._file.write(replace(mark, processes=tuple(living), asker=driver.process))
            until = asyncio.get_running_loop().time() + steps.LOCK_S
            found = {p.pid: await self._found(driver, p) for p in living}
            plan = Plan({pid: process for pid, process in found.items() if process is not None})
            answer = await self._nvml.look([other])
            there = nvml_answers.seen(answer, other, 1 << 50).processes
            for pid, process in plan.processes.items():
                process.away = pid in there
            plan.turn_back("gpu-leased has ended")
            works = {pid: p for pid, p in plan.processes.items() if p.state == RUNNING}
            for pid in works:  # the others do not stand still while these are waited for
                del plan.processes[pid]
            await steps.take_all(self._driver, driver, plan, home, other)
            plan.processes.update(works)
            for pid in works:
                await steps.look_again(driver, plan, pid, until)
            await steps.take_all(self._driver, driver, plan, home, other)
            return plan

    @staticmethod
    async def _until_ended(asker: ProcessId | None) -> None:
        """It ends when the step is over that it is in: before that, what the driver says of the
        processes may change. One that hangs is waited for as long as for any step."""
        looks = round(STEP_S / LOOK_S)
        while asker is not None and alive(asker) and looks:
            await asyncio.sleep(LOOK_S)
            looks -= 1

    async def _found(self, driver: Driver, living: ProcessId) -> Process | None:
        """A process that was checkpointed is restored wherever that was: nothing says where, until
        it is there. None: it has just ended."""
        pid = living.pid
        try:
            process = Process(await driver.state(pid))
        except DriverFault as fault:
            if isinstance(fault, Lost) or alive(living):
                raise
            return None
        if process.state == CHECKPOINTED:
            with contextlib.suppress(DriverFault):
                await driver.take(Step(pid, RESTORE), "", "")
                process.state = LOCKED
        return process
