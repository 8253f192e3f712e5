"""Tenants of one chain hold their device together, as the processes of one tenant do.

They pass each other memory, which one of them has: so it has to be on the device while another one
of them holds it, and none of it may leave before all of them have given the device back.

- A waiter whose chain holds its device *joins*: it is granted at once, whoever else waits, if all
  that the chain has there fits. What it has of the quantum is what is left of it to the one that it
  has joined, so a chain keeps others waiting for no longer than one tenant would.
- Who gives the device back while others of its chain hold it *lingers*: its memory counts as held
  until the last of them has given it back.
- Where the chain's memory does not fit any more those go that have joined last.

So it is for tenants of one device whose memory is swapped, without a share or a class.
"""

from __future__ import annotations

from collections.abc import Iterable

from leased.core.rules import Rules
from leased.core.state import FREE, Device, Lease, Tenant


def takes_part(tenant: Tenant) -> bool:
    """Whether it holds its device together with others of its chain."""
    plain = not (tenant.has_share or tenant.online or tenant.offline)
    return bool(tenant.chain) and tenant.swaps and plain and len(tenant.gang) == 1


def are_together(one: Tenant, other: Tenant) -> bool:
    """Whether the two hold their device together."""
    same = one.chain == other.chain and one.gang == other.gang
    return same and takes_part(one) and takes_part(other)


def fit(device: Device, tenants: Iterable[Tenant]) -> bool:
    """Whether what they have on the device can be there at once."""
    found = [device.residency.shares.get(tenant.id) for tenant in tenants]
    return sum(s.bytes - s.stuck for s in found if s is not None) <= device.residency.capacity


class Chains:
    """Asked before others are granted. To ask changes nothing."""

    def __init__(self, rules: Rules):
        self.rules = rules

    def next_to_join(self) -> tuple[Tenant, Lease] | None:
        """A waiter that joins now, and the lease that it joins; None: none does."""
        for chain in self.rules.chains.values():
            for waiter in chain.values() if len(chain) > 1 else ():
                lease = self._to_join(waiter) if waiter.place is not None else None
                if lease is not None:
                    return waiter, lease
        return None

    def _to_join(self, waiter: Tenant) -> Lease | None:
        mates = self.holding(waiter)
        leases = [mate.lease for mate in mates if mate.lease is not None]
        if not leases or waiter.heeds == FREE:
            return None
        if any(lease.revoked or lease.short for lease in leases):
            return None
        if any(other not in mates for other in self.rules.in_the_way(waiter)):
            return None
        there = [waiter, *mates, *self.lingering(waiter)]
        return min(leases, key=lambda one: one.since) if fit(waiter.devices[0], there) else None

    def could_hold(self, one: Tenant, other: Tenant) -> bool:
        """Whether the two hold their device together where both want it."""
        there = {t.id: t for t in (one, other, *self.holding(one), *self.lingering(one))}
        return are_together(one, other) and fit(one.devices[0], there.values())

    def holding(self, tenant: Tenant) -> list[Tenant]:
        """The others of its chain that hold its device."""
        return [mate for mate in self._mates(tenant) if mate.lease is not None]

    def lingering(self, tenant: Tenant) -> list[Tenant]:
        """The others of its chain whose memory counts as held on its device."""
        return [mate for mate in self._mates(tenant) if mate.lingers]

    def _mates(self, tenant: Tenant) -> list[Tenant]:
        chain = self.rules.chains.get(tenant.chain, {}).values()
        return [mate for mate in chain if mate is not tenant and are_together(mate, tenant)]
