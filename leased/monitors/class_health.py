"""Looks at how well each GPU is for offline jobs (leased/classes/health.py), and evicts them."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from leased.classes.health import Health, Signs
from leased.classes.xid import kind
from leased.config.config import ClassesConfig
from leased.config.options import OFFLINE, ONLINE
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.monitors.device_monitor import DeviceMonitor

log = logging.getLogger("gpu-leased")

LOOK_S = 1.0

Evict = Callable[[str, str, float, int], Awaitable[bool]]


@dataclass
class ClassHealth:
    """Call beat() every LOOK_S. evict: a job, as squeue shows it, for a reason, for so many
    seconds, if it has not begun anew so often. states: by UUID. over: GPUs whose offline jobs
    are to be evicted."""

    leases: Leases
    devices: DeviceMonitor
    config: Callable[[], ClassesConfig]
    evict: Evict
    states: dict[str, Health] = field(default_factory=dict)
    over: list[tuple[Gpu, Health]] = field(default_factory=list)

    def beat(self) -> Coroutine[Any, Any, None] | None:
        """Look at each GPU; what is left are evictions."""
        now = self.leases.clock()
        for gpu in self.leases.gpus.slurms():
            if gpu.uuid not in self.states:
                self.states[gpu.uuid] = Health(since=now)
            self._look(gpu, self.states[gpu.uuid], now)
        return self._evict_all() if self.over else None

    def _look(self, gpu: Gpu, health: Health, now: int) -> None:
        before = health.state
        signs = self._signs(gpu.uuid)
        for number in signs.xids:
            log.warning("GPU %d: the driver tells of Xid %d (%s)", gpu.index, number, kind(number))
        goes = health.look(now, signs)
        if health.state is not before:
            why = f": {health.why}" if health.why else ""
            log.info("GPU %d is %s for offline jobs%s", gpu.index, health.state.value, why)
        if goes and self.config().unhealthy == "evict":
            self.over.append((gpu, health))

    async def _evict_all(self) -> None:
        """Evict the offline jobs of the GPUs that have gone over their limits."""
        while self.over:
            await self._evict(*self.over.pop(0))

    async def _evict(self, gpu: Gpu, health: Health) -> None:
        """Let the GPU's offline jobs run again later, one after the other."""
        reason, pause_s = f"GPU {gpu.index} was over its limits, {health.why}", health.stays_s
        jobs = [
            t.job for t in self.leases.tenants.sharing(gpu.uuid) if t.given.job_class == OFFLINE
        ]
        for job in jobs:
            await self.evict(job, reason, pause_s, self.config().requeues)

    def _signs(self, uuid: str) -> Signs:
        slices, residency = self.leases.slices, self.leases.view.device(uuid).residency
        online = [t for t in self.leases.tenants.sharing(uuid) if t.given.job_class == ONLINE]
        return Signs(
            fault=self.leases.gpus.fault_of(uuid) or self.devices.lost_bits(uuid),
            online_busy=slices.used_by([t.job_id for t in online], uuid) if online else None,
            clock=self.devices.clocks.get(uuid) if self.devices.busy.get(uuid) else None,
            memory=residency.fixed / residency.room if residency.room else None,
            slowdown=slices.excess_of(uuid),
            xids=self.devices.take_xids(uuid),
        )

    def refusal(self, uuid: str) -> str | None:
        """Why no new offline job may begin on the device; None: one may."""
        health = self.states.get(uuid)
        if health is None or health.takes_offline or self.config().unhealthy == "log":
            return None
        return f"{health.state.value}, {health.why}"
