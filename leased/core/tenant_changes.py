"""Applies the events of tenants: what they and their processes do, and what is measured of them."""

from __future__ import annotations

from leased.core.departures import Departures
from leased.core.effects import Effects
from leased.core.leasing import Leasing
from leased.core.memory import Memory
from leased.core.policy_states import PolicyStates
from leased.core.rules import Rules
from leased.core.state import Tenant
from leased.core.tenant_events import (
    Channels,
    Closed,
    Frozen,
    LeftUncopied,
    MemoryChanged,
    OfTenant,
    Opened,
    Parked,
    PolicyRestored,
    Released,
    Requested,
    Restored,
    SpeedMeasured,
    StraySeen,
    Thawed,
    Unparked,
    UsageRestored,
    Widened,
)
from leased.core.waiters import Waiters
from leased.usage.usage import Usage

# What was measured, counted or found out elsewhere.
Found = Channels | SpeedMeasured | LeftUncopied | UsageRestored | StraySeen


class TenantChanges:
    """Applies an event to its tenant."""

    def __init__(
        self,
        rules: Rules,
        effects: Effects,
        memory: Memory,
        waiters: Waiters,
        leasing: Leasing,
        *,
        policy_states: PolicyStates,
    ):
        self.rules = rules
        self.effects = effects
        self.memory = memory
        self.waiters = waiters
        self.leasing = leasing
        self.quanta = leasing.quanta
        self.stages = leasing.stages
        self.policy_states = policy_states
        self.departures = Departures(rules, memory, waiters, leasing.stages)

    def apply(self, tenant: Tenant, event: OfTenant) -> None:
        if isinstance(event, Requested):
            self._request(tenant)
        elif isinstance(event, Released):
            self.leasing.release(tenant, event.epoch)
        elif isinstance(event, MemoryChanged):
            if self.memory.change(tenant, event) and tenant.lease and tenant.lease.restoring:
                self.quanta.go_on(tenant, tenant.lease)
        elif isinstance(event, Restored):
            self._restored(tenant, event.epoch)
        elif isinstance(event, Frozen | Thawed):
            self._freeze(tenant, isinstance(event, Frozen))
        elif isinstance(event, Parked | Unparked):
            self.departures.apply(tenant, event)
        elif isinstance(event, Widened):
            self._widen(tenant, event.gang)
        elif isinstance(event, Closed):
            self._close(tenant)
        elif isinstance(event, Found):
            self._count(tenant, event)
        elif isinstance(event, PolicyRestored):
            self.policy_states.restore(tenant, event)
            self.waiters.place_again(tenant)
        else:
            self.leasing.adopt(tenant, event.epoch)

    def _count(self, tenant: Tenant, event: Found) -> None:
        if isinstance(event, Channels):
            self.rules.controls_changed |= tenant.controlled != event.controlled
            tenant.controlled = event.controlled
        elif isinstance(event, UsageRestored):
            tenant.usage[event.device] = Usage(**event.amounts)
        elif isinstance(event, SpeedMeasured):
            residency = self.rules.devices[event.device].residency
            residency.learn_speed(tenant.id, event.bytes, event.ns)
        elif isinstance(event, LeftUncopied):
            self.memory.left_uncopied(tenant, event)
        elif event.device in tenant.usage:
            tenant.usage[event.device].strays += 1

    def open(self, event: Opened) -> None:
        """ValueError: the tenant is known already, or a device of its gang is not."""
        unknown = [uuid for uuid in event.gang if uuid not in self.rules.devices]
        if unknown or not event.gang or event.tenant in self.rules.tenants:
            raise ValueError(f"tenant {event.tenant}: known already, or devices {unknown} are not")
        tenant = tenant_of(event)
        tenant.usage = {uuid: Usage() for uuid in event.gang}
        tenant.seen_at = self.rules.now
        self.rules.tenants[event.tenant] = tenant
        self.rules.join(tenant)
        self.rules.policies.of(tenant).opened(tenant)
        self.rules.shares.join(tenant)

    def _close(self, tenant: Tenant) -> None:
        self.waiters.end(tenant)
        if tenant.lease is not None:
            self.leasing.end(tenant)
        tenant.settle(self.rules.now, self.rules.devices)
        tenant.settle_memory(self.rules.devices)
        self.rules.charges.forget(tenant, self.rules.now)
        for uuid in tenant.gang:
            self.rules.devices[uuid].gauge.forget(tenant.id)
        del self.rules.tenants[tenant.id]
        self.rules.policies.of(tenant).closed(tenant.id)
        self.rules.gangs_changed |= len(tenant.gang) > 1
        self.rules.shares.leave(tenant)
        self.rules.controls_changed |= tenant.has_asked
        self.memory.forget(tenant)

    def _widen(self, tenant: Tenant, gang: tuple[str, ...]) -> None:
        """The tenant needs more devices from its next lease on, so its present lease ends."""
        for uuid in gang:
            tenant.usage.setdefault(uuid, Usage())
        waits = tenant.waiting
        tenant.wider = gang
        if tenant.lease is not None:
            if not tenant.lease.revoked:
                self.stages.revoke(tenant)
            return
        self.waiters.end(tenant)
        self.leasing.take_wider(tenant)
        if waits:  # behind those who have waited for the new devices already
            self._request(tenant)

    def _request(self, tenant: Tenant) -> None:
        if tenant.parked is not None:
            self.departures.requested(tenant)
        if tenant.lease is None and not tenant.waiting:
            self.waiters.begin(tenant)

    def _restored(self, tenant: Tenant, epoch: int) -> None:
        lease = tenant.lease
        if lease is not None and lease.epoch == epoch and lease.restoring:
            self.quanta.begin(tenant, lease)
            for uuid in tenant.gang:
                self.rules.devices[uuid].restoring.discard(tenant.id)
            self.memory.restored(tenant)
            self.effects.changed |= tenant.mask

    def _freeze(self, tenant: Tenant, frozen: bool) -> None:
        """The tenant cannot act, or can again. The time in between is not added to its debt.
        Waiters that its memory kept out come before it, so that standing still earns no turn."""
        tenant.frozen = frozen
        for epoch in tenant.forfeited:
            tenant.forfeited[epoch] = None if frozen else self.rules.now
        self.memory.freeze(tenant, frozen)
        if not frozen:
            self.waiters.let_in(tenant)
        self.waiters.sort(tenant)
        lease = tenant.lease
        if frozen and lease is not None and (lease.revoked or lease.is_awaited):
            self.stages.pass_over(tenant)


def tenant_of(event: Opened) -> Tenant:
    """The new tenant."""
    return Tenant(
        *(event.tenant, event.gang, event.lock, event.quantum_ns, event.swaps),
        request=event.request,
        limit=event.limit,
        job=event.job,
    )
