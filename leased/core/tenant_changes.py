"""Applies the events of tenants: what they and their processes do, and what is measured of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leased.core import classes, events, orders
from leased.core.actions import Answer
from leased.core.leasing import Leasing
from leased.core.rules import NEW_CONTROLS
from leased.core.state import Parking, Tenant
from leased.usage.usage import Usage


class TenantChanges:
    """Applies the events as OF_TENANT says."""

    def __init__(self, leasing: Leasing):
        self.leasing = leasing
        self.rules, self.effects = leasing.rules, leasing.effects
        self.memory, self.waiters, self.stages = leasing.memory, leasing.waiters, leasing.stages

    def open(self, event: events.Opened) -> None:
        """ValueError: the tenant is known already, or a device of its gang is not."""
        unknown = [uuid for uuid in event.gang if uuid not in self.rules.devices]
        if unknown or not event.gang or event.tenant in self.rules.tenants:
            raise ValueError(f"tenant {event.tenant}: known already, or devices {unknown} are not")
        tenant = tenant_of(event)
        tenant.usage = {uuid: Usage() for uuid in event.gang}
        tenant.seen_at = self.rules.now
        self.rules.tenants[event.tenant] = tenant
        if tenant.chain:
            self.rules.chains.setdefault(tenant.chain, {})[tenant.id] = tenant
        self.rules.join(tenant)
        self.rules.policies.of(tenant).opened(tenant)

    def close(self, tenant: Tenant, _: events.Closed) -> None:
        self.waiters.end(tenant)
        if tenant.lease is not None:
            self.leasing.end(tenant)
        tenant.settle(self.rules.now, self.rules.devices)
        tenant.settle_memory(self.rules.devices)
        self.rules.charges.forget(tenant, self.rules.now)
        for uuid in tenant.gang:
            self.rules.devices[uuid].gauge.forget(tenant.id)
        del self.rules.tenants[tenant.id]
        if tenant.chain:
            self.rules.chains[tenant.chain].pop(tenant.id)
            if not self.rules.chains[tenant.chain]:
                del self.rules.chains[tenant.chain]
        self.rules.policies.of(tenant).closed(tenant.id)
        self.rules.leave(tenant)
        self.memory.forget(tenant)

    def widen(self, tenant: Tenant, event: events.Widened) -> None:
        """The tenant needs more devices from its next lease on, so its present lease ends."""
        for uuid in event.gang:
            tenant.usage.setdefault(uuid, Usage())
        waits = tenant.waiting
        tenant.wider = event.gang
        if tenant.lease is not None:
            if not tenant.lease.revoked:
                self.stages.revoke(tenant)
            return
        self.waiters.end(tenant)
        self.leasing.take_wider(tenant)
        if waits:  # behind those who have waited for the new devices already
            self.request(tenant, events.Requested(tenant.id))

    def request(self, tenant: Tenant, _: events.Requested) -> None:
        if tenant.parked is not None:
            self._end_parking(tenant)
        if tenant.lease is None and not tenant.waiting:
            self.waiters.begin(tenant)

    def order(self, tenant: Tenant, event: events.Ordered) -> None:
        """Others order its leases."""
        tenant.ordered = event.order
        if event.order in (orders.LINE, orders.HOLD) and tenant.lease is None:
            self._line_up(tenant)
        elif event.order in (orders.HOLD, orders.RUN):
            self._keeps(tenant)
        elif event.order == orders.STOP:
            self._stop(tenant)
        elif event.order in (orders.BACK, orders.REST):
            self._let_go(tenant, event.order)

    def _line_up(self, tenant: Tenant) -> None:
        if not tenant.waiting:
            self.waiters.begin(tenant)
        elif tenant.place is not None and tenant.ordered == orders.HOLD:
            self.waiters.hurry(tenant)
        else:
            self.waiters.sort(tenant)

    def _answer(self, tenant: Tenant, answer: str) -> None:
        self.effects.do(Answer(tenant.id, answer))

    def _keeps(self, tenant: Tenant) -> None:
        """It is to have its devices already."""
        if tenant.lease is None:
            self._answer(tenant, orders.ENDS)
        elif tenant.ordered == orders.HOLD:
            self._answer(tenant, orders.HELD)

    def _stop(self, tenant: Tenant) -> None:
        lease = tenant.lease
        if lease is None:
            if not self.rules.grace_until:  # else a process may still come back with it
                self._answer(tenant, orders.STOPPED)
        elif lease.untold is not None:
            self._answer(tenant, orders.STOPPED)
        elif not lease.revoked:
            self.stages.revoke(tenant)

    def _let_go(self, tenant: Tenant, order: str) -> None:
        lease = tenant.lease
        tenant.ordered = orders.READY if order == orders.BACK else orders.REST
        if lease is not None and lease.untold is not None:
            self.leasing.end(tenant)
        elif lease is not None and not lease.revoked:
            self.stages.revoke(tenant)
        if order == orders.BACK:
            self._line_up(tenant)
        else:
            self.waiters.end(tenant)

    def restored(self, tenant: Tenant, event: events.Restored) -> None:
        lease = tenant.lease
        if lease is not None and lease.epoch == event.epoch and lease.restoring:
            self.leasing.begin(tenant, lease)

    def freeze(self, tenant: Tenant, event: events.Frozen | events.Thawed) -> None:
        """The tenant cannot act, or can again. The time in between is not added to its debt.
        Waiters that its memory kept out come before it, so that standing still earns no turn."""
        tenant.frozen = frozen = isinstance(event, events.Frozen)
        for epoch in tenant.forfeited:
            tenant.forfeited[epoch] = None if frozen else self.rules.now
        self.memory.freeze(tenant, frozen)
        if not frozen:
            self.waiters.let_in(tenant)
        self.waiters.sort(tenant)
        lease = tenant.lease
        if frozen and lease is not None and (lease.revoked or lease.is_awaited):
            self.stages.pass_over(tenant)

    def park(self, tenant: Tenant, event: events.Parked) -> None:
        """Its lease and memory leave its devices, though no other tenant needs them. One that is
        suspended stays so, whoever else parks it.

        A parked tenant without a lease evicts its memory at once; one with a lease is revoked
        first. A request ends the parking. It is served when all memory has left, so that memory
        never moves both ways at once. A suspended tenant requests nothing until it is unparked.
        """
        if tenant.parked is not None and tenant.parked.suspended:
            return
        lease, before = tenant.lease, tenant.parked if event.suspended else None
        tenant.parked = Parking(self.rules.now, event.by, event.suspended, before)
        if lease is None:
            self.memory.leave(tenant)
        elif not lease.revoked:
            self.stages.revoke(tenant)
        self.waiters.sort(tenant)
        if tenant.waiting:
            self._end_parking(tenant)

    def unpark(self, tenant: Tenant, _: events.Unparked) -> None:
        """The tenant restores what there is free room for before its next lease. If it was parked
        when it was suspended, and has requested nothing since, it stays parked."""
        if tenant.parked is not None and tenant.parked.before is not None and not tenant.waiting:
            tenant.parked = tenant.parked.before
        elif tenant.parked is not None:
            self._back(tenant)
            self.memory.come_back(tenant)

    def _end_parking(self, tenant: Tenant) -> None:
        """By a request, which does not end a suspension."""
        if tenant.parked is not None and not tenant.parked.suspended:
            self._back(tenant)

    def _back(self, tenant: Tenant) -> None:
        tenant.parked = None
        self.memory.unpark(tenant)
        self.waiters.sort(tenant)

    def remember(self, tenant: Tenant, event: events.PolicyRestored) -> None:
        self.rules.charges.restore(tenant, event)
        self.waiters.place_again(tenant)

    # -- what was measured, counted or found out elsewhere ------------------------------

    def change_memory(self, tenant: Tenant, event: events.MemoryChanged) -> None:
        more = self.memory.change(tenant, event)
        if more > 0 and tenant.lease and tenant.lease.restoring:
            self.stages.go_on(tenant, tenant.lease)
        for holder in self.rules.untold.values() if more < 0 else ():
            if holder.lease and event.device in holder.gang:
                self.stages.go_on(holder, holder.lease)

    def learn_speed(self, tenant: Tenant, event: events.SpeedMeasured) -> None:
        residency = self.rules.devices[event.device].residency
        residency.learn_speed(tenant.id, event.bytes, event.ns)

    def restore_usage(self, tenant: Tenant, event: events.UsageRestored) -> None:
        tenant.usage[event.device] = Usage(**event.amounts)

    def count_stray(self, tenant: Tenant, event: events.StraySeen) -> None:
        if event.device in tenant.usage:
            tenant.usage[event.device].strays += 1

    def control(self, tenant: Tenant, event: events.Channels) -> None:
        if tenant.controlled != event.controlled:
            tenant.controlled = event.controlled
            self.rules.news |= NEW_CONTROLS


OF_TENANT: dict[type, Callable[[TenantChanges, Tenant, Any], None]] = {
    events.Requested: TenantChanges.request,
    events.Released: lambda self, tenant, event: self.leasing.release(tenant, event.epoch),
    events.MemoryChanged: TenantChanges.change_memory,
    events.SpeedMeasured: TenantChanges.learn_speed,
    events.Signalled: lambda self, tenant, _: self.waiters.short_turns.ask(tenant, self.rules.now),
    events.Restored: TenantChanges.restored,
    events.Frozen: TenantChanges.freeze,
    events.Thawed: TenantChanges.freeze,
    events.Parked: TenantChanges.park,
    events.Unparked: TenantChanges.unpark,
    events.Widened: TenantChanges.widen,
    events.Closed: TenantChanges.close,
    events.Channels: TenantChanges.control,
    events.LeftUncopied: lambda self, tenant, event: self.memory.left_uncopied(tenant, event),
    events.UsageRestored: TenantChanges.restore_usage,
    events.StraySeen: TenantChanges.count_stray,
    events.PolicyRestored: TenantChanges.remember,
    events.Adopted: lambda self, tenant, event: self.leasing.adopt(tenant, event.epoch),
    events.Ordered: TenantChanges.order,
}


def tenant_of(event: events.Opened) -> Tenant:
    """The new tenant."""
    return Tenant(
        *(event.tenant, event.gang, event.lock, event.quantum_ns, event.swaps),
        request=event.request,
        online=event.job_class == classes.ONLINE,
        offline=event.job_class == classes.OFFLINE,
        limit=event.limit,
        job=event.job,
        ordered=orders.REST if event.ordered else "",
        chain=event.chain,
    )
