"""What the arbiter knows of one device, to be read only. See arbiter_view.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from leased.core.arbiter import Arbiter
from leased.core.state import Device, Tenant
from leased.leasing.tenant_view import HeldLease
from leased.memory.share import Share
from leased.memory.speed import Speed
from leased.usage.handoff_times import HandoffTimes


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
    """What the arbiter knows of one device."""

    def __init__(self, arbiter: Arbiter, device: Device):
        self._arbiter = arbiter
        self._device = device

    # -- who uses it --------------------------------------------------------------

    @property
    def holders(self) -> Iterator[HeldLease]:
        """The leases on it, the longest held first."""
        for tenant in self._arbiter.rules.holders(self._device.uuid):
            if tenant.lease:
                yield HeldLease.of(tenant.id, tenant.lease)

    @property
    def n_holders(self) -> int:
        return len(self._device.holders)

    @property
    def queue(self) -> list[int]:
        """The jobs that wait for it, first come first."""
        return [tenant.id for tenant in self._arbiter.rules.waiting(self._device)]

    @property
    def first_waiting(self) -> int | None:
        return next(iter(self.queue), None)

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
        return sorted(t.id for t in self._arbiter.rules.uncontrolled(self._device.uuid))

    def _present(self) -> dict[int, Tenant]:
        waiting = self._arbiter.rules.waiting(self._device)
        return self._device.holders | {tenant.id: tenant for tenant in waiting}

    # -- how it is used -----------------------------------------------------------

    @property
    def lock(self) -> str | None:
        """The lock mode that the site forces; None: each job's own."""
        return self._device.lock

    @property
    def quantum_ns(self) -> int | None:
        """The quantum that the site forces; None: each job's own."""
        return self._device.quantum_ns

    @property
    def drained(self) -> bool:
        return self._device.drained

    @property
    def mode(self) -> str:
        """How its tenants with lock auto use it now, in one word; `why` has the reason."""
        return self._device.mode

    @property
    def why(self) -> str:
        """Why it has that mode, for people."""
        return self._device.why

    @property
    def too_much(self) -> tuple[int, int] | None:
        """If that is since the tenants' memory does not fit together: the bytes that they have, and
        those that there is room for."""
        memory = self._device.residency
        if self.drained or self.lock in ("on", "off") or memory.fits():
            return None
        return memory.total, memory.capacity

    @property
    def handoff_times(self) -> HandoffTimes:
        """How long handoffs to those that hold it have taken."""
        return self._device.handoff_times

    # -- its memory ---------------------------------------------------------------

    @property
    def fits(self) -> bool:
        """Whether all tenants' memory counts as fitting. It does so again only after a while."""
        return self._device.fits

    @property
    def fits_now(self) -> bool:
        return self._device.residency.fits()

    @property
    def room(self) -> int:
        """Bytes of the device that all tenants together can have."""
        return self._device.residency.room

    @property
    def tenant_bytes(self) -> int:
        """Bytes that all tenants have, on the device or evicted from it."""
        return self._device.residency.total + self._device.residency.fixed

    @property
    def resident_bytes(self) -> int:
        return self._device.residency.resident

    @property
    def link(self) -> Speed:
        """How fast swapped memory moves."""
        return self._device.residency.link

    @property
    def paging(self) -> Speed:
        """How fast managed memory moves."""
        return self._device.residency.paging

    def memory_of(self, job_id: int) -> TenantMemory:
        return TenantMemory.of(self._device.residency.share(job_id))

    def memory(self) -> dict[int, TenantMemory]:
        """Of all tenants that have any, by job."""
        shares = self._device.residency.shares
        return {job: TenantMemory.of(share) for job, share in shares.items()}

    def resident_of(self, job_id: int) -> int:
        return self._device.residency.evictable(job_id)

    def crowded_out(self, job_id: int) -> bool:
        """Whether memory of others that cannot be moved leaves too little room for the job's."""
        return self._device.residency.crowded_out(job_id)

    def kept_out_by(self, job_id: int) -> dict[int, int]:
        """The jobs that leave it too little room, with their bytes: the most first."""
        return self._device.residency.keep_out(job_id)

    def leaving(self) -> Iterator[int]:
        """The jobs that have been told to evict memory and can do so now."""
        residency = self._device.residency
        if residency.swappers:
            yield from (job for job in residency.shares if residency.leaving(job))
