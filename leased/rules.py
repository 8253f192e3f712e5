"""What the arbiter's rules say of a state, without changing it: who may, who waits, how long."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from leased.residency import Residency
from leased.state import FOREVER, Device, Meter, Tenant

HANDOFF_SHARE = 20  # a handoff is at most a twentieth of the quantum
LONGEST_STRETCH_NS = 300_000_000_000  # whatever handoffs are said to take
BACKFILL_NS = 20_000_000  # less is not worth a grant


class Rules:
    """The state and the questions. devices: capacity in bytes by UUID; now in ns."""

    def __init__(self, devices: Mapping[str, int], now: int):
        self.devices = {
            uuid: Device(uuid, Residency(size), Meter(now)) for uuid, size in devices.items()
        }
        self.tenants: dict[int, Tenant] = {}
        self.now = now

    @property
    def queue(self) -> list[int]:
        """Tenants that wait, first come first."""
        waiting = [tenant for tenant in self.tenants.values() if tenant.waiting]
        return [tenant.id for tenant in sorted(waiting, key=lambda t: t.arrival)]

    def holders(self, device: str) -> list[Tenant]:
        """Tenants that have a lease on the device, longest first."""
        held = self.devices[device].holders.values()
        return sorted(held, key=lambda t: t.lease.epoch if t.lease else 0)

    def lock_of(self, tenant: Tenant) -> str:
        """The lock mode that counts: the site's for one of its devices, else the tenant's."""
        lock = tenant.lock
        for uuid in tenant.gang:
            forced = self.devices[uuid].lock
            if forced is not None:
                lock = forced
                break
        return "auto" if tenant.swaps and lock == "off" else lock

    def can_share(self, tenant: Tenant) -> bool:
        lock = self.lock_of(tenant)
        if lock == "auto":
            for uuid in tenant.gang:
                device = self.devices[uuid]
                if not device.fits or device.exclusive:
                    return False
            return True
        return lock == "off"

    def compatible(self, one: Tenant, other: Tenant) -> bool:
        """May both hold a lease on the same device at once?"""
        if self.lock_of(one) == "off" or self.lock_of(other) == "off":
            return True
        return self.can_share(one) and self.can_share(other)

    def in_the_way(self, tenant: Tenant) -> Iterator[Tenant]:
        """Holders that must release before this tenant can have its gang."""
        for uuid in tenant.gang:
            for other in self.devices[uuid].holders.values():
                if other is not tenant and not self.compatible(tenant, other):
                    yield other

    def is_free(self, tenant: Tenant) -> bool:
        """Nobody holds, and nothing withholds, what the tenant needs."""
        if self.withheld(tenant):
            return False
        return next(self.in_the_way(tenant), None) is None

    def drained(self, tenant: Tenant) -> bool:
        """The site has drained one of its devices."""
        return any(self.devices[uuid].drained for uuid in tenant.gang)

    def withheld(self, tenant: Tenant) -> bool:
        """It may not have its gang, or could not use it: it cannot act, or it swaps, so that all
        its memory must be there, and what others have and cannot be moved leaves no room."""
        if tenant.frozen or self.drained(tenant):
            return True
        return tenant.swaps and any(
            self.devices[uuid].residency.crowded_out(tenant.id) for uuid in tenant.gang
        )

    def free_until(self, tenant: Tenant) -> int:
        """How long it may hold its gang without holding up those who came before it."""
        until = FOREVER
        for uuid in tenant.gang:
            for other in self.devices[uuid].queue.values():
                if other is tenant:
                    break
                if not self.compatible(tenant, other):
                    until = min(until, self.expected_end(other))
        return until

    def expected_end(self, waiter: Tenant) -> int:
        """When the holders in the way of a waiter will be gone, drains aside."""
        if self.withheld(waiter):
            return FOREVER
        ends = [self.now]
        for holder in self.in_the_way(waiter):
            lease = holder.lease
            assert lease is not None
            if lease.overrun_at is not None or not lease.revoked:
                quantum = self.quantum(holder, 0)
                ends.append(lease.due if lease.due is not None else lease.since + quantum)
        return max(ends)

    def worth(self, tenant: Tenant) -> int:
        """A lease for less time would be spent on the handoff."""
        return max(BACKFILL_NS, HANDOFF_SHARE * self.cost(tenant))

    def cost(self, tenant: Tenant) -> int:
        return max(self.devices[uuid].residency.handoff_ns(tenant.id) for uuid in tenant.gang)

    def quantum(self, tenant: Tenant, handoff_ns: int) -> int:
        wanted = tenant.quantum_ns
        for uuid in tenant.gang:
            device = self.devices[uuid]
            forced = device.quantum_ns if device.quantum_ns is not None else device.tried_quantum_ns
            if forced is not None:
                wanted = forced
                break
        return max(wanted, min(HANDOFF_SHARE * handoff_ns, LONGEST_STRETCH_NS))

    def waiter_for(self, holder: Tenant) -> Tenant | None:
        """The first waiter that this holder is in the way of."""
        for uuid in holder.gang:
            for waiter in self.devices[uuid].queue.values():
                if not self.compatible(holder, waiter) and not self.withheld(waiter):
                    return waiter
        return None
