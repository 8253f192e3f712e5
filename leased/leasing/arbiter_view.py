"""What the arbiter knows, to be read only: for status, questions, and the monitors.

A view copies nothing: each question is answered from the arbiter's state at that moment. The
tenants, devices and leases that it returns are the arbiter's own: they are read and never changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from leased.core.arbiter import Arbiter
from leased.core.policy import PolicyState
from leased.core.rules import Rules
from leased.core.state import FOREVER, Device, Lease, Tenant
from leased.memory.share import Share
from leased.usage.usage import Usage


@dataclass(frozen=True)
class HeldLease:
    """A lease that a tenant holds. Times in ns of the daemon's clock.

    since: when its quantum began. ends: when it will be revoked; None: nobody waits for it, or only
    those for whom it does not end, or it has been revoked.
    """

    job_id: int
    epoch: int
    since: int
    revoked: bool
    ends: int | None

    @classmethod
    def of(cls, job_id: int, lease: Lease) -> HeldLease:
        ends = lease.revoke_at if lease.revoke_at and lease.revoke_at < FOREVER else None
        return cls(job_id, lease.epoch, lease.since, lease.revoked, ends)


class DeviceView:
    """What the arbiter knows of one device. state: the arbiter's own, with its settings and how it
    is used; residency: what is in its memory. Both are read and never changed here."""

    def __init__(self, arbiter: Arbiter, device: Device):
        self._arbiter = arbiter
        self.state = device
        self.residency = device.residency

    # -- who uses it --------------------------------------------------------------

    @property
    def holders(self) -> Iterator[HeldLease]:
        """The leases on it, the longest held first."""
        for tenant in self._arbiter.rules.holders(self.state.uuid):
            if tenant.lease:
                yield HeldLease.of(tenant.id, tenant.lease)

    @property
    def queue(self) -> list[int]:
        """The jobs that wait for it, first come first."""
        return [tenant.id for tenant in self._arbiter.rules.waiting(self.state.bit)]

    def locks(self) -> dict[int, str]:
        """By job, the lock mode that counts for each that holds it or waits for it."""
        return {tenant.id: self._arbiter.rules.lock_of(tenant) for tenant in self.present()}

    def present(self) -> list[Tenant]:
        """Who holds it or waits for it, by their numbers."""
        there = {*self.state.holders.values(), *self._arbiter.rules.waiting(self.state.bit)}
        return sorted(there, key=lambda tenant: tenant.id)

    def uncontrolled(self) -> list[Tenant]:
        """Those whose work time slices of the GPU cannot divide from that of others."""
        there = (t for t in self._arbiter.tenants.values() if t.mask & self.state.bit)
        return sorted((t for t in there if t.uncontrolled), key=lambda tenant: tenant.id)

    # -- how it is used -----------------------------------------------------------

    @property
    def too_much(self) -> tuple[int, int] | None:
        """If that is since the tenants' memory does not fit together: the bytes that they have, and
        those that there is room for."""
        memory = self.residency
        if self.state.drained or self.state.lock in ("on", "off") or memory.fits():
            return None
        return memory.total, memory.capacity

    # -- its memory ---------------------------------------------------------------

    @property
    def tenant_bytes(self) -> int:
        """Bytes that all tenants have, on the device or evicted from it."""
        return self.residency.total + self.residency.fixed

    def memory(self) -> Mapping[int, Share]:
        """Of all tenants that have any, by job."""
        return self.residency.shares

    def leaving(self) -> Iterator[int]:
        """The jobs that have been told to evict memory and can do so now."""
        residency = self.residency
        if residency.swappers:
            yield from (job for job in residency.shares if residency.leaving(job))


class ArbiterView:
    """What the arbiter knows. clock: monotonic ns."""

    def __init__(self, arbiter: Arbiter, clock: Callable[[], int]):
        self._arbiter = arbiter
        self._clock = clock

    @property
    def rules(self) -> Rules:
        """What the arbiter's rules say: to ask changes nothing."""
        return self._arbiter.rules

    @property
    def epoch(self) -> int:
        """The epoch of the last lease that was granted to any tenant, or a higher one."""
        return self._arbiter.epoch

    @property
    def in_grace(self) -> bool:
        """Whether nothing is granted yet after a restart."""
        return self._arbiter.rules.grace_until != 0

    def tenant(self, job_id: int) -> Tenant:
        return self._arbiter.tenants[job_id]

    def parked_by(self, job_id: int) -> str | None:
        """Who has parked the tenant; None: nobody."""
        parked = self.tenant(job_id).parked
        return parked.by if parked else None

    def find_tenant(self, job_id: int) -> Tenant | None:
        return self._arbiter.tenants.get(job_id)

    def lease(self, job_id: int) -> Lease | None:
        """The lease that a tenant holds."""
        return self._arbiter.tenants[job_id].lease

    def hold_together(self, job_id: int, other: int) -> bool:
        """Whether two tenants are of one chain, and hold their device together."""
        tenants = self._arbiter.tenants
        return self._arbiter.leasing.chains.could_hold(tenants[job_id], tenants[other])

    def waiting(self) -> list[Tenant]:
        """Who waits for any device, first come first."""
        return self._arbiter.rules.waiting()

    @property
    def frozen(self) -> list[int]:
        """The tenants whose processes cannot act."""
        return [tenant.id for tenant in self._arbiter.tenants.values() if tenant.frozen]

    def device(self, uuid: str) -> DeviceView:
        return DeviceView(self._arbiter, self._arbiter.devices[uuid])

    def devices(self) -> list[DeviceView]:
        return [self.device(uuid) for uuid in self._arbiter.devices]

    def usage(self, job_id: int) -> Mapping[str, Usage]:
        """What a tenant has had of each device up to now."""
        return self._arbiter.usage(job_id, self._clock())

    def policy_state(self, job_id: int) -> PolicyState:
        """What the tenant's policy remembers of it up to now."""
        return self._arbiter.policy_state(job_id, self._clock())
