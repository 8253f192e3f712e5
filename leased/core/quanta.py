"""When each lease enters its next stage; the first such time is the end of its quantum."""

from __future__ import annotations

from leased.core.deadlines import Deadlines
from leased.core.handoff_times import bucket_of
from leased.core.rules import MOVE_PATIENCE_NS, Rules
from leased.core.state import FOREVER, Device, Lease, Tenant

RESTORE_NS = 30_000_000_000  # for memory that is swapped to come back, before the quantum begins


class Quanta:
    """A lease that nobody waits for has no end."""

    def __init__(self, rules: Rules):
        self.rules = rules
        self.dues: Deadlines[int] = Deadlines()  # when a tenant's lease enters its next stage

    def begin(self, tenant: Tenant, lease: Lease) -> None:
        """All memory is restored, and the quantum begins, shorter if the restore took too long."""
        lease.restoring = False
        self.count_handoffs(lease)
        lease.since = min(self.rules.now, lease.granted_at + RESTORE_NS)
        if lease.contended and not lease.revoked:
            self.plan_end(tenant, lease)

    def count_handoffs(self, lease: Lease) -> None:
        """The holder can begin to work, so the handoffs to it are over."""
        now, devices = self.rules.now, self.rules.devices
        for since, uuids in lease.handed.items():
            bucket = bucket_of(now - since)
            for uuid in uuids:
                devices[uuid].handoff_times.add(now - since, bucket)
        lease.handed.clear()

    def go_on(self, tenant: Tenant, lease: Lease) -> None:
        """The holder has restored some of its memory."""
        lease.moved_at = self.rules.now
        if lease.contended and not lease.revoked:
            self.plan_end(tenant, lease)

    def plan_ends(self, device: Device) -> None:
        """The lengths of quanta have changed on this device."""
        for holder in device.holders.values():
            if holder.lease is not None and holder.lease.contended and not holder.lease.revoked:
                self.plan_end(holder, holder.lease)

    def quantum(self, holder: Tenant, lease: Lease) -> int:
        """The holder's quantum for the waiter that it was told of."""
        rules = self.rules
        waiter = rules.tenants.get(lease.waiter) if lease.waiter is not None else None
        rules.charges.tell(holder, rules.now)
        if waiter is not None:
            rules.charges.tell(waiter, rules.now)
        return rules.quantum(holder, lease.cost_ns, waiter)

    def plan_end(self, holder: Tenant, lease: Lease) -> None:
        """A contended lease ends with its quantum, however much of it is over, or sooner where
        its memory does not come back."""
        quantum = self.quantum(holder, lease)
        end = lease.since + quantum - lease.paid_ns
        if lease.restoring:
            end = min(end + RESTORE_NS, lease.moved_at + MOVE_PATIENCE_NS)
        self.set_due(holder, min(max(end, self.rules.now), lease.until))

    def set_due(self, tenant: Tenant, when: int | None) -> None:
        lease = tenant.lease
        assert lease is not None
        lease.due = when
        self.dues.put(tenant.id, when)
        if not lease.revoked and lease.until == FOREVER:
            cohorts = self.rules.cohorts
            cohorts.holders.ends.put(tenant.id, cohorts.of[tenant.id], when)
