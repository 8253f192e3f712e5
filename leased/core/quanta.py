"""When each lease enters its next stage; the first such time is the end of its quantum."""

from __future__ import annotations

from leased.core.deadlines import Deadlines
from leased.core.rules import MOVE_PATIENCE_NS, Rules
from leased.core.state import Device, Lease, Tenant
from leased.usage.handoff_times import bucket_of

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
        if not lease.joined:
            lease.since = min(self.rules.now, lease.granted_at + RESTORE_NS) - lease.ran_ns
        self.plan_again(tenant, lease)

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
        self.plan_again(tenant, lease)

    def plan_ends(self, device: Device) -> None:
        """The lengths of quanta have changed on this device."""
        for holder in device.holders.values():
            if holder.lease is not None:
                self.plan_again(holder, holder.lease)

    def plan_again(self, holder: Tenant, lease: Lease) -> None:
        """The lease may end at another time, if it has an end."""
        if lease.contended and not lease.revoked:
            self.plan_end(holder, lease)

    def quantum(self, holder: Tenant, lease: Lease) -> int:
        """The holder's quantum for the waiter that it was told of."""
        rules = self.rules
        waiter = rules.tenants.get(lease.waiter) if lease.waiter is not None else None
        if rules.charges.on:
            rules.charges.charge(holder, rules.now)
            if waiter is not None:
                rules.charges.charge(waiter, rules.now)
        return rules.quantum(holder, lease.cost_ns, waiter)

    def plan_end(self, holder: Tenant, lease: Lease) -> None:
        """A contended lease ends with its quantum, however much of it is over, or sooner where
        its memory does not come back."""
        quantum = self.quantum(holder, lease)
        end = lease.since + quantum - lease.paid_ns
        if lease.restoring and quantum:
            end = min(end + RESTORE_NS, lease.moved_at + MOVE_PATIENCE_NS)
        self.set_due(holder, lease, min(max(end, self.rules.now), lease.until))

    def set_due(self, tenant: Tenant, lease: Lease, when: int | None) -> None:
        lease.due = when
        self.dues.put(tenant.id, when)
