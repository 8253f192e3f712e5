"""Finds jobs that cannot act (suspended, stopped, frozen), so that they do not keep others waiting.

While jobs wait, it looks at the holders, at the next in the queue, and at tenants that have been
told to evict memory; while no job waits it looks at none. Work of a holder may run on when its
processes are stopped. As long as NVML shows the holder's devices busy, or does not say, the lease
is drained as any other. If NVML were wrong, the rest of a kernel would run beside the next
holder's.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from leased.connections.accounts import Accounts
from leased.connections.limits import Lines
from leased.core.events import Frozen, Thawed
from leased.core.state import Tenant as State
from leased.leasing.arbiter_view import DeviceView
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.monitors.looks import Rounds, each
from leased.processes import stopped_processes

log = logging.getLogger("gpu-leased")

LOOK_S = 0.25
QUIET_LOOKS = 2  # in succession: what NVML says may be of an earlier moment

Busy = Callable[[Collection[str]], Awaitable[Mapping[str, Optional[int]]]]


@dataclass
class SuspendedJobs:
    """Call beat() every LOOK_S.

    busy: percent by UUID, as NVML says. still: whether the process of a pid cannot act.
    """

    leases: Leases
    busy: Busy
    payers: Accounts
    lines: Lines
    still: Callable[[int], bool] = stopped_processes.stands_still
    # By job and epoch: quiet looks in succession.
    quiet: dict[tuple[int, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.rounds = Rounds(self.still)

    def beat(self) -> Coroutine[Any, Any, None] | None:
        """Look once at the jobs for which others wait, or will; None: there is none."""
        self.rounds.keep(self.leases.tenants)
        candidates = self._candidates()
        if not candidates and not self.leases.view.frozen:
            self.quiet.clear()
            return None
        return self._look(candidates)

    async def _look(self, candidates: list[Tenant]) -> None:
        still = []
        async for tenant, charged in each(self.leases, self.payers, candidates):
            with charged:
                still += [tenant] if self.cannot_act(tenant) else []
        holding = {(t.job_id, epoch): t for t in still if (epoch := self._epoch(t))}
        self.quiet = {key: n for key, n in self.quiet.items() if key in holding}
        await self._thaw()
        for tenant in still:
            if not self._epoch(tenant):
                self._freeze(tenant)
        if holding:
            percents = await self.busy({uuid for t in holding.values() for uuid in t.gang})
            for key, tenant in holding.items():
                self._count(key, tenant, percents)

    def _count(
        self, key: tuple[int, int], tenant: Tenant, percents: Mapping[str, int | None]
    ) -> None:
        """A holder cannot act: freeze it once its devices have had no work for QUIET_LOOKS."""
        quiet = all(percents.get(uuid) == 0 for uuid in tenant.gang)
        self.quiet[key] = self.quiet.get(key, 0) + 1 if quiet else 0
        if self.quiet[key] < QUIET_LOOKS or self._epoch(tenant) != key[1]:
            return
        if self.cannot_act(tenant):
            self._freeze(tenant)

    def stands_still(self, tenant: Tenant) -> bool:
        """Whether the job cannot act, or Slurm is about to stop it."""
        state = self.leases.view.find_tenant(tenant.job_id)
        suspended = state is not None and state.parked is not None and state.parked.suspended
        return suspended or self.cannot_act(tenant)

    def cannot_act(self, tenant: Tenant) -> bool:
        """Whether no process of the job can act of those that would have to. Where they are many,
        that takes some looks."""
        return self.rounds.look(tenant, self._pids(tenant)) is True

    @staticmethod
    def _pids(tenant: Tenant) -> list[int]:
        """Of the processes that would have to act."""
        held = [client for client in tenant.clients if client.held]
        matter = held or [c for c in tenant.clients if c.wants] or tenant.clients
        return [client.pid for client in matter]

    def _epoch(self, tenant: Tenant) -> int:
        """The epoch of the lease that the job holds, else 0."""
        state = self.leases.view.find_tenant(tenant.job_id)
        return state.epoch if state else 0

    def _is_frozen(self, tenant: Tenant) -> bool:
        state = self.leases.view.find_tenant(tenant.job_id)
        return state is not None and state.frozen

    def _freeze(self, tenant: Tenant) -> None:
        if self.leases.tenants.get(tenant.job_id) is tenant and not self._is_frozen(tenant):
            self._say(tenant, "is stopped or suspended")
            self.leases.run(Frozen(tenant.job_id))

    async def _thaw(self) -> None:
        tenants = self.leases.tenants
        frozen = [tenants[job] for job in self.leases.view.frozen if job in tenants]
        async for tenant, charged in each(self.leases, self.payers, frozen):
            with charged:
                goes_on = self.rounds.go_on(tenant, self._pids(tenant))
            if goes_on:
                self._say(tenant, "runs again")
                self.leases.run(Thawed(tenant.job_id))

    def _say(self, tenant: Tenant, what: str) -> None:
        if self.lines.may(tenant.uid):
            log.info("job %s (uid %d) %s", tenant.job, tenant.uid, what)

    def _candidates(self) -> list[Tenant]:
        """The jobs for which others wait, or will: each once."""
        waiting = self.leases.view.waiting()
        wanted = {job for device in self.leases.view.devices() for job in _on(device, waiting)}
        return [self.leases.tenants[job] for job in sorted(wanted) if job in self.leases.tenants]


def _on(device: DeviceView, waiting: list[State]) -> Iterator[int]:
    """While a job waits: the holders, the next in the queue, and the jobs that must evict. waiting:
    who waits for any device, first come first."""
    first = next((tenant for tenant in waiting if tenant.mask & device.state.bit), None)
    if first is not None or device.state.drained:
        yield from device.state.holders
    if first is not None:
        yield first.id
    yield from device.leaving()
