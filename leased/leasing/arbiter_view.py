"""What the arbiter knows, to be read only: for status, questions, and the monitors.

A view copies nothing. It shows what is so when it is asked, and keeps nothing alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from leased.core.arbiter import Arbiter
from leased.core.policy import PolicyState
from leased.core.share import Share
from leased.core.speed import Speed
from leased.core.state import Device, Lease, Parking, Tenant
from leased.core.usage import Usage


@dataclass(frozen=True)
class HeldLease:
    """A lease that a tenant holds. Times in ns of the daemon's clock.

    since: when its quantum began. ends: when it will be revoked; None: nobody waits for it, or
    it has been revoked.
    """

    job_id: int
    epoch: int
    since: int
    revoked: bool
    ends: int | None

    @classmethod
    def of(cls, job_id: int, lease: Lease) -> HeldLease:
        return cls(job_id, lease.epoch, lease.since, lease.revoked, lease.revoke_at)


@dataclass(frozen=True)
class TenantMemory:
    """What one tenant has on one device, in bytes. fixed: more, which cannot be moved.

    stuck: what could be moved, were its processes able to act.
    """

    bytes: int = 0
    fixed: int = 0
    stuck: int = 0

    @classmethod
    def of(cls, share: Share | None) -> TenantMemory:
        return cls(share.bytes, share.fixed, share.stuck) if share else cls()


class TenantView:
    """One tenant."""

    def __init__(self, arbiter: Arbiter, tenant: Tenant):
        self._arbiter = arbiter
        self._tenant = tenant

    @property
    def lease(self) -> HeldLease | None:
        lease = self._tenant.lease
        return HeldLease.of(self._tenant.id, lease) if lease else None

    @property
    def epoch(self) -> int:
        """Of the lease that it holds, else 0."""
        return self._tenant.lease.epoch if self._tenant.lease else 0

    @property
    def waiting(self) -> bool:
        return self._tenant.waiting

    @property
    def frozen(self) -> bool:
        """Its processes cannot act."""
        return self._tenant.frozen

    @property
    def parked(self) -> Parking | None:
        """Since when it has nothing on its devices, and why."""
        return self._tenant.parked

    @property
    def state(self) -> str:
        """In one word: holds, parked, waits or idle."""
        if self._tenant.lease:
            return "holds"
        if self._tenant.parked:
            return "parked"
        return "waits" if self._tenant.waiting else "idle"

    @property
    def since(self) -> int | None:
        """When its quantum, its parking or its wait began, in ns; None: it is idle."""
        if self._tenant.lease:
            return self._tenant.lease.since
        if self._tenant.parked:
            return self._tenant.parked.since
        return self._tenant.asked_at if self._tenant.waiting else None

    @property
    def last_epoch(self) -> int:
        """Of the last lease that it was granted; 0: it never was."""
        return self._tenant.granted

    @property
    def lock(self) -> str:
        """The lock mode that counts: the site's for one of its devices, else its own."""
        return self._arbiter.rules.lock_of(self._tenant)

    @property
    def can_share(self) -> bool:
        return self._arbiter.rules.can_share(self._tenant)

    @property
    def quantum_ns(self) -> int:
        """How long it may hold its gang while somebody waits, where nothing has to move."""
        return self._arbiter.rules.quantum(self._tenant, 0)

    @property
    def turn_ns(self) -> int | None:
        """How long its turns are if it takes some though all memory fits; None: it does not."""
        return self._arbiter.rules.turn_ns(self._tenant)


class DeviceView:
    """One device."""

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
        return list(self._device.queue)

    @property
    def first_waiting(self) -> int | None:
        return next(iter(self._device.queue), None)

    def locks(self) -> dict[int, str]:
        """By job, the lock mode that counts for each that holds it or waits for it."""
        present = {**self._device.holders, **self._device.queue}
        return {job: self._arbiter.rules.lock_of(tenant) for job, tenant in present.items()}

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
        """In one word how its tenants with lock auto use it now; `why` has the reason."""
        return self._device.mode

    @property
    def why(self) -> str:
        return self._device.why

    # -- its memory ---------------------------------------------------------------

    @property
    def fits(self) -> bool:
        """All tenants' memory fits together, as decided: what fits anew is waited for."""
        return self._device.fits

    @property
    def fits_now(self) -> bool:
        return self._device.residency.fits()

    @property
    def room(self) -> int:
        """Bytes that tenants' allocations can have together."""
        return self._device.residency.room

    @property
    def tenant_bytes(self) -> int:
        """What all tenants have, on it or not."""
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
        return TenantMemory.of(self._device.residency.shares.get(job_id))

    def memory(self) -> dict[int, TenantMemory]:
        """Of all tenants that have any, by job."""
        shares = self._device.residency.shares
        return {job: TenantMemory.of(share) for job, share in shares.items()}

    def resident_of(self, job_id: int) -> int:
        return self._device.residency.evictable(job_id)

    def crowded_out(self, job_id: int) -> bool:
        """What others have and cannot be moved leaves no room for all that the job has."""
        return self._device.residency.crowded_out(job_id)

    def kept_out_by(self, job_id: int) -> dict[int, int]:
        """The jobs that crowd it out, and their bytes: the most first."""
        return self._device.residency.keep_out(job_id)

    def leaving(self) -> Iterator[int]:
        """The jobs that were told to give up memory and now could."""
        residency = self._device.residency
        if residency.swappers:
            yield from (job for job in residency.shares if residency.leaving(job))


class ArbiterView:
    """All of it."""

    def __init__(self, arbiter: Arbiter, clock: Callable[[], int]):
        self._arbiter = arbiter
        self._clock = clock

    @property
    def epoch(self) -> int:
        """Of the last lease that was granted to anybody, or above it."""
        return self._arbiter.epoch

    @property
    def drain_ns(self) -> int:
        """Within that a holder has to release a lease that is revoked."""
        return self._arbiter.rules.drain_ns

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        return self._arbiter.next_deadline()

    def tenant(self, job_id: int) -> TenantView:
        return TenantView(self._arbiter, self._arbiter.tenants[job_id])

    def find_tenant(self, job_id: int) -> TenantView | None:
        return self.tenant(job_id) if job_id in self._arbiter.tenants else None

    def device(self, uuid: str) -> DeviceView:
        return DeviceView(self._arbiter, self._arbiter.devices[uuid])

    def has_device(self, uuid: str) -> bool:
        return uuid in self._arbiter.devices

    def devices(self) -> list[DeviceView]:
        return [self.device(uuid) for uuid in self._arbiter.devices]

    def usage(self, job_id: int) -> Mapping[str, Usage]:
        """What a tenant has had of each device up to now."""
        return self._arbiter.usage(job_id, self._clock())

    def policy_state(self, job_id: int) -> PolicyState:
        """What the tenant's policy remembers of it up to now."""
        return self._arbiter.policy_state(job_id, self._clock())
