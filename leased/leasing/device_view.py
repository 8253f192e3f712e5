"""What the arbiter knows of one device, to be read only. See arbiter_view.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from leased.core.arbiter import Arbiter
from leased.core.state import Device, Tenant
from leased.leasing.tenant_view import HeldLease
from leased.memory.share import Share


@dataclass(frozen=True)
class TenantMemory:
    """The memory of one tenant on one device, in bytes.

    bytes: what can be moved. fixed: what cannot, beside that. stuck: what could be moved if the
    tenant's processes could act.
    """

    bytes: int = 0
    fixed: int = 0
    stuck: int = 0

    @classmethod
    def of(cls, share: Share | None) -> TenantMemory:
        return cls(share.bytes, share.fixed, share.stuck) if share else cls()


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
        return [tenant.id for tenant in self._arbiter.rules.waiting(self.state)]

    @property
    def first_waiting(self) -> int | None:
        return self._arbiter.rules.first_to_come(self.state)

    def locks(self) -> dict[int, str]:
        """By job, the lock mode that counts for each that holds it or waits for it."""
        return {job: self._arbiter.rules.lock_of(tenant) for job, tenant in self._present().items()}

    def names(self, jobs: Iterable[int]) -> list[str]:
        """The jobs as squeue shows them."""
        return [self._arbiter.tenants[job].job or str(job) for job in jobs]

    def with_share(self) -> list[int]:
        """Of the jobs that hold it or wait for it, those that have a share of its time."""
        return sorted(job for job, tenant in self._present().items() if tenant.has_share)

    @property
    def keeps_shares_beside(self) -> bool:
        """Whether all jobs with a share that hold it or want it may run side by side with others
        there."""
        shares = [tenant for tenant in self._present().values() if tenant.has_share]
        return all(self._arbiter.rules.can_share(tenant) for tenant in shares)

    @property
    def uncontrolled(self) -> list[int]:
        """The jobs whose work time slices of the GPU cannot divide from that of others."""
        return sorted(t.id for t in self._arbiter.rules.uncontrolled(self.state.uuid))

    def _present(self) -> dict[int, Tenant]:
        waiting = self._arbiter.rules.waiting(self.state)
        return self.state.holders | {tenant.id: tenant for tenant in waiting}

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

    def memory_of(self, job_id: int) -> TenantMemory:
        return TenantMemory.of(self.residency.share(job_id))

    def memory(self) -> dict[int, TenantMemory]:
        """Of all tenants that have any, by job."""
        shares = self.residency.shares
        return {job: TenantMemory.of(share) for job, share in shares.items()}

    def leaving(self) -> Iterator[int]:
        """The jobs that have been told to evict memory and can do so now."""
        residency = self.residency
        if residency.swappers:
            yield from (job for job in residency.shares if residency.leaving(job))
