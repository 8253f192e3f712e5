"""Takes all of a job's memory off its GPU, at a moment when nothing of its work has been stopped in
mid-kernel: then the driver can checkpoint its processes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from leased.core.events import Parked, Signalled, Unparked
from leased.leasing import memory_orders
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.moving.carriers import Carriers
from leased.wire import daemon_messages

TOLD_S = 0.05  # processes may tell so late of what they had when their gates shut
DRAIN_S = 120.0  # for its work to finish and its memory to leave, or for its turn to come
POLL_S = 0.001
REST_S = 10.0  # for what slows down the driver's checkpoint: that of 90 GiB takes 2.6 s
READY_S = 60.0  # for host memory: what is not there by then is made when memory leaves


class Stays(Exception):
    """The job stays as it was; the text says why."""


class Drain:
    """by: the name by which status says who has parked the job."""

    def __init__(self, leases: Leases, by: str):
        self._leases = leases
        self.by = by

    @staticmethod
    def begin_rest(tenant: Tenant) -> None:
        """Have its processes give up what slows down the driver's checkpoint: they say READY once
        what can go now has gone, and the rest goes when all bytes have left."""
        for client in tenant.clients:
            client.ready = False
        tenant.tell_all(daemon_messages.MOVES)

    @staticmethod
    def prepare(tenant: Tenant) -> None:
        """Have host memory made for all that is to leave, while the job works on: that takes longer
        than the bytes."""
        memory_orders.make_ready(tenant)

    async def until_back(self, tenant: Tenant, carriers: Carriers) -> None:
        """Wait until all memory is back that has gone away by a carrier. Stays: in vain."""
        await self.until(
            tenant, lambda _: not carriers.carries(tenant), "what it had elsewhere is not back"
        )

    async def until_ready(self, tenant: Tenant, most_s: float = READY_S) -> None:
        """Wait until all of its processes that are there now have said READY, or have ended, and
        no longer than that. Stays: it has ended."""
        clients, until = list(tenant.clients), self._leases.clock() + int(most_s * 1e9)

        def is_over(_: Tenant) -> bool:
            there = (client for client in clients if client in tenant.clients)
            return self._leases.clock() > until or all(client.ready for client in there)

        await self.until(tenant, is_over, "")

    async def park(self, tenant: Tenant) -> int:
        """Park the job at a moment when all of its work will finish, and hear all that its
        processes have. Returns since when it is parked (ns). Stays: it does not finish. Then and
        afterwards unpark() it."""
        if _stands_still(tenant):
            self._leases.run(Signalled(tenant.job_id))  # its turn comes soon
        while True:
            await self.until(tenant, self._can_finish, "its turn on the GPU does not come")
            began = self._leases.clock()
            self._park(tenant)
            await self.until(tenant, self._has_released, "its work does not finish")
            released = self._leases.clock()
            await self.until(tenant, self._is_away, "its memory does not leave")
            if not _stands_still(tenant):
                await self._rest(tenant)
                await asyncio.sleep(TOLD_S - (self._leases.clock() - released) / 1e9)
                return began
            self._leases.run(Unparked(tenant.job_id))

    def _park(self, tenant: Tenant) -> None:
        """Stays: somebody else keeps it parked, who may let it go on at any time."""
        self._leases.run(Parked(tenant.job_id, self.by, suspended=True))
        by = self._leases.view.parked_by(tenant.job_id)
        if by != self.by:
            raise Stays(f"it is parked by {by or 'nobody'}")

    async def _rest(self, tenant: Tenant) -> None:
        """Wait until its processes have given up what slows down the driver's checkpoint. Stays: it
        has ended."""
        self.begin_rest(tenant)
        await self.until_ready(tenant, REST_S)

    def unpark(self, tenant: Tenant) -> None:
        """Let it go on, if it is this that has parked it."""
        if self._leases.view.parked_by(tenant.job_id) == self.by:
            self._leases.run(Unparked(tenant.job_id))

    async def until(
        self,
        tenant: Tenant,
        is_so: Callable[[Tenant], bool],
        why_not: str,
        most_s: float | None = None,
    ) -> None:
        """Wait. most_s: None: DRAIN_S. Stays: in vain, or the job has ended."""
        most_s = DRAIN_S if most_s is None else most_s
        until = self._leases.clock() + int(most_s * 1e9)
        self.check_open(tenant)
        while not is_so(tenant):
            if self._leases.clock() > until:
                raise Stays(f"{why_not} within {most_s:g} s")
            await asyncio.sleep(POLL_S)
            self.check_open(tenant)

    def check_open(self, tenant: Tenant) -> None:
        """Stays: the job has ended. Another run of it may be there by now, which nothing of this
        concerns."""
        if not self._leases.tenants.has(tenant):
            raise Stays("it has ended")

    def _can_finish(self, tenant: Tenant) -> bool:
        """Whether the work of the job, if it is parked now, is waited for: nothing of it has been
        stopped in mid-kernel, or is about to be, or has not gone on yet."""
        lease = self._leases.view.lease(tenant.job_id)
        runs = lease is None or not (lease.revoked or lease.restoring)
        return runs and not _stands_still(tenant)

    def _has_released(self, tenant: Tenant) -> bool:
        """Whether none of its processes has a lease any more."""
        busy = any(client.held or client.passed for client in tenant.clients)
        return not busy and self._leases.view.lease(tenant.job_id) is None

    def _is_away(self, tenant: Tenant) -> bool:
        """Whether no lease and no memory that can leave is on the GPU any more."""
        if tenant.must_leave or not self._has_released(tenant):
            return False
        return not any(has.resident for c in tenant.clients for has in c.memory.values())


def _stands_still(tenant: Tenant) -> bool:
    """Whether work of it was stopped in mid-kernel, which no driver could checkpoint: it goes on
    with the job's next lease."""
    return any(client.stopped for client in tenant.clients)
