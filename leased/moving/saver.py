"""Keeps a job still while its memory is saved to files, and perhaps its processes with it.

A process of the job's user saves it (leased/saving) and asks for this. The job is parked as for a
move, and each of its processes lists its copies on the host. Then whoever saves it writes to their
memory what they shall do, and asks here how it goes as a sign that it still runs; it says when it
is over, wherever the processes are by then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from leased.api.answers import CHECKPOINT
from leased.base.errors import Refused
from leased.leasing import moved as books
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.moving.carriers import Carriers
from leased.moving.drain import Drain, Stays
from leased.wire import daemon_messages

log = logging.getLogger("gpu-leased")

LIST_S = 10.0  # for a process to list its copies
SILENT_S = 60.0  # whoever saves it asks every second
DRAINS, LISTED, OVER, FAILED = "drains", "listed", "over", "failed"


@dataclass
class Save:
    """processes: by pid, where in its memory the list of its copies lies. why: it has failed."""

    job: str
    state: str = DRAINS
    why: str = ""
    processes: dict[int, int] = field(default_factory=dict)
    asked_at: int = 0
    is_over: bool = False


class Saver:
    """One save of a job at a time."""

    def __init__(self, leases: Leases, carriers: Carriers):
        self._leases = leases
        self._carriers = carriers
        self._drain = Drain(leases, CHECKPOINT)
        self._saves: dict[int, Save] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, tenant: Tenant, check: Callable[[], None]) -> Save:
        """check: whether the processes can be saved; Refused: they cannot. Called once more when
        they have drained."""
        check()
        self._saves = {job: s for job, s in self._saves.items() if job in self._leases.tenants}
        save = self._saves[tenant.job_id] = Save(tenant.job, asked_at=self._leases.clock())
        task = asyncio.get_running_loop().create_task(self._run(tenant, save, check))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return save

    def saves(self, job_id: int) -> bool:
        """Whether the job is being saved."""
        save = self._saves.get(job_id)
        return save is not None and save.state in (DRAINS, LISTED)

    def find(self, tenant: Tenant, *, is_over: bool = False) -> Save:
        """The last save of the job. is_over: it need not be still any more."""
        save = self._saves.get(tenant.job_id)
        if save is None:
            raise Refused(f"job {tenant.job} is not being saved", "gpu-leasectl checkpoint JOB DIR")
        save.asked_at = self._leases.clock()
        save.is_over |= is_over
        if save.is_over and save.state == LISTED:  # another save may follow at once
            self._end(tenant, save, OVER)
        return save

    async def _run(self, tenant: Tenant, save: Save, check: Callable[[], None]) -> None:
        try:
            await self._keep_still(tenant, save, check)
            self._end(tenant, save, OVER)
        except (Stays, Refused) as why:
            save.why = str(why)
            log.warning("job %s (uid %d) is not saved: %s", save.job, tenant.uid, save.why)
        finally:
            self._end(tenant, save, FAILED)

    def _end(self, tenant: Tenant, save: Save, state: str) -> None:
        """The job goes on, unless it does already."""
        if save.state in (OVER, FAILED):
            return
        save.state = state
        if self._leases.tenants.has(tenant):
            books.stays(tenant)
            self._drain.unpark(tenant)

    async def _keep_still(self, tenant: Tenant, save: Save, check: Callable[[], None]) -> None:
        await self._drain.until_back(tenant, self._carriers)
        self._drain.prepare(tenant)
        await self._drain.until_ready(tenant)
        self._drain.begin_rest(tenant)
        await self._drain.park(tenant)
        check()
        clients = list(tenant.clients)
        for client in clients:
            client.saved_at = None
            client.send(daemon_messages.SAVE)

        def listed(_: Tenant) -> bool:
            return all(client.saved_at is not None for client in clients)

        await self._drain.until(tenant, listed, "not all of its processes answer", LIST_S)
        save.processes = {client.pid: client.saved_at or 0 for client in clients}
        if not all(save.processes.values()):
            raise Stays("one of its processes has no memory to list its copies in")
        save.state = LISTED
        log.info("job %s (uid %d) is still, to be saved", save.job, tenant.uid)
        while self._leases.tenants.has(tenant) and not save.is_over:
            if self._leases.clock() - save.asked_at > SILENT_S * 1e9:
                raise Stays("whoever saves it has not been heard of")
            await asyncio.sleep(0.01)
