"""What the arbiter knows of one tenant, to be read only. See arbiter_view.py."""

from __future__ import annotations

from dataclasses import dataclass

from leased.core.arbiter import Arbiter
from leased.core.charges import sliced
from leased.core.state import FOREVER, Lease, Parking, Tenant


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


class TenantView:
    """What the arbiter knows of one tenant."""

    def __init__(self, arbiter: Arbiter, tenant: Tenant):
        self._arbiter = arbiter
        self._tenant = tenant

    @property
    def lease(self) -> Lease | None:
        """The lease that it holds: the arbiter's own."""
        return self._tenant.lease

    @property
    def epoch(self) -> int:
        """The epoch of the lease that it holds, else 0."""
        return self._tenant.lease.epoch if self._tenant.lease else 0

    @property
    def runs(self) -> bool:
        """Whether it holds a lease and has been told of it."""
        return self._tenant.lease is not None and self._tenant.lease.untold is None

    @property
    def waiting(self) -> bool:
        return self._tenant.waiting

    @property
    def frozen(self) -> bool:
        """Whether its processes cannot act: they are stopped or frozen."""
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
    def barred_until(self) -> int | None:
        """It waits and is at its limit until then, in ns; None: it is not."""
        return self._tenant.barred_until if self._tenant.waiting else None

    @property
    def lacks_share(self) -> str | None:
        """Why its request does not count yet, so that it gets no lease; None: it counts."""
        return self._arbiter.rules.shares.why_waiting(self._tenant)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last lease that it was granted; 0: it never was granted one."""
        return self._tenant.granted

    @property
    def on_gpu(self) -> bool:
        """Whether it has memory on one of its devices that can be moved."""
        return any(device.residency.evictable(self._tenant.id) for device in self._tenant.devices)

    @property
    def last_asked(self) -> int:
        """When it last began to wait, in ns; 0: it never did."""
        return self._tenant.asked_at

    @property
    def lock(self) -> str:
        """The lock mode that counts: the site's for one of its devices, else its own."""
        return self._arbiter.rules.lock_of(self._tenant)

    @property
    def controlled(self) -> bool:
        """Whether time slices of the GPU can divide its work from that of others."""
        return self._tenant.controlled

    @property
    def sliced(self) -> bool:
        """Whether the GPU's own time slices keep its share now."""
        return sliced(self._tenant)

    @property
    def turn_ns(self) -> int:
        """How long its turns are at least, as the memory of its next one takes long to move."""
        rules = self._arbiter.rules
        return rules.floor_ns(rules.handoff_ns(self._tenant))

    @property
    def asked_ns(self) -> int:
        """The quantum that the site or the job wants for it."""
        return self._arbiter.rules.asked_ns(self._tenant)
