"""Parks jobs that hold GPU memory and have not used their GPU for limits.park_after."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from leased.core.events import Parked
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.wire import daemon_messages

log = logging.getLogger("gpu-leased")

LOOK_S = 1.0
SITE = "limits.park_after"  # the name by which status says who has parked the job

Busy = Callable[[Collection[str]], Awaitable[Mapping[str, Optional[int]]]]
Sign = tuple[object, ...]  # a value that changes when the job uses its GPU


@dataclass
class IdleJobs:
    """Call beat() every LOOK_S.

    busy: percent by UUID, as NVML says. after_ns: how long a job may be idle before it is parked;
    0: jobs are not parked.
    """

    leases: Leases
    busy: Busy
    after_ns: Callable[[], int]
    # By job: its sign, and since when it has been that.
    seen: dict[int, tuple[Sign, int]] = field(default_factory=dict)

    def beat(self) -> Coroutine[Any, Any, None] | None:
        """Look once at the jobs that have memory on a GPU, if the site has jobs parked."""
        if self.after_ns():
            return self._look_at_all()
        self.seen.clear()
        return None

    async def _look_at_all(self) -> None:
        jobs = [t for t in self.leases.tenants.values() if self._may_be_parked(t)]
        self.seen = {t.job_id: self.seen[t.job_id] for t in jobs if t.job_id in self.seen}
        holders = [t for t in jobs if self.leases.view.tenant(t.job_id).lease]
        devices = {uuid for tenant in holders for uuid in tenant.gang}
        percents = await self.busy(devices) if devices else {}
        for tenant in jobs:
            self._look(tenant, any(percents.get(uuid, 0) != 0 for uuid in tenant.gang))
        for tenant in holders:  # the next beat looks at their answers
            if tenant.job_id in self.seen:
                tenant.tell_holders(daemon_messages.MEASURE)

    def _may_be_parked(self, tenant: Tenant) -> bool:
        """Whether the job has memory on a device that it can evict."""
        state = self.leases.view.tenant(tenant.job_id)
        if state.parked or state.frozen or state.waiting:
            return False
        return state.on_gpu

    def _look(self, tenant: Tenant, device_busy: bool) -> None:
        """Park the job if it has been idle for long enough.

        device_busy: a GPU that it holds has work, of whichever job, or NVML does not say.
        """
        state = self.leases.view.find_tenant(tenant.job_id)
        if state is None or state.parked:  # the job has ended, or has been parked by somebody else
            return
        now, holds = self.leases.clock(), state.lease is not None
        sign = self._sign(tenant)
        before = self.seen.get(tenant.job_id)
        if before is None or before[0] != sign or (holds and device_busy):
            self.seen[tenant.job_id] = sign, now
        elif now - before[1] >= self.after_ns():
            log.info("job %s (uid %d) is parked: it has left its GPU idle", tenant.job, tenant.uid)
            del self.seen[tenant.job_id]
            self.leases.run(Parked(tenant.job_id, SITE))

    def _sign(self, tenant: Tenant) -> Sign:
        calls = [client.calls and client.calls[0] for client in tenant.clients]
        return self.leases.view.tenant(tenant.job_id).granted, *calls
