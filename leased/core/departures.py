"""Parking: a tenant's lease and memory leave its devices, though no other tenant needs them.

A parked tenant without a lease evicts its memory at once; one with a lease is revoked first. A
request ends the parking. It is served when all memory has left, so that memory never moves both
ways at once. A suspended tenant requests nothing until it is unparked.
"""

from __future__ import annotations

from leased.core.memory import Memory
from leased.core.rules import Rules
from leased.core.stages import Stages
from leased.core.state import Parking, Tenant
from leased.core.tenant_events import Parked, Unparked
from leased.core.waiters import Waiters


class Departures:
    """Parks tenants and lets them back."""

    def __init__(self, rules: Rules, memory: Memory, waiters: Waiters, stages: Stages):
        self.rules = rules
        self.memory = memory
        self.waiters = waiters
        self.stages = stages

    def apply(self, tenant: Tenant, event: Parked | Unparked) -> None:
        if isinstance(event, Parked):
            self.park(tenant, event)
        else:
            self.unpark(tenant)

    def park(self, tenant: Tenant, event: Parked) -> None:
        """Park the tenant. One that is suspended stays so, whoever else parks it."""
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
            self.requested(tenant)

    def unpark(self, tenant: Tenant) -> None:
        """End the parking. The tenant restores what there is free room for before its next lease.
        If it was parked when it was suspended, and has requested nothing since, it stays parked."""
        if tenant.parked is not None and tenant.parked.before is not None and not tenant.waiting:
            tenant.parked = tenant.parked.before
        elif tenant.parked is not None:
            self._end(tenant)
            self.memory.come_back(tenant)

    def requested(self, tenant: Tenant) -> None:
        """A request for a lease ends a parking, but not a suspension."""
        if tenant.parked is not None and not tenant.parked.suspended:
            self._end(tenant)

    def _end(self, tenant: Tenant) -> None:
        tenant.parked = None
        self.memory.unpark(tenant)
        self.waiters.sort(tenant)
