"""What tests ask about the line of waiters, and the arbiter does not."""

from __future__ import annotations

from leased.core.arbiter import Arbiter
from leased.core.rules import BACKFILL_NS, HANDOFF_SHARE
from leased.core.state import Tenant
from leased.core.turns import Front, Turns


def queue(a: Arbiter) -> list[int]:
    """Tenants that wait: who is next, then those who could not run, as they came."""
    waiting = [tenant for tenant in a.tenants.values() if tenant.waiting]
    waiting.sort(key=lambda t: (t.place is None, t.place or t.arrival))
    return [tenant.id for tenant in waiting]


def worth(a: Arbiter, tenant: Tenant) -> int:
    """A lease for less time would be spent on the handoff, ns."""
    return max(BACKFILL_NS, HANDOFF_SHARE * a.rules.handoff_ns(tenant))


def free_until(a: Arbiter, tenant: Tenant) -> int:
    """Until when the tenant may hold its gang without delaying those before it."""
    return Gaps(a.rules).until(tenant)


class Gaps(Turns):
    """Of any waiter, whether it may be let in or not."""

    def until(self, tenant: Tenant) -> int:
        """When the turn begins of the first that is before it and needs one of its devices."""
        fronts: list[Front] = []
        for place, waiter in self._waiters(tenant.mask):
            blocked = waiter.mask & self.rules.taken(waiter.heeds)
            before = tenant.place is not None and place < tenant.place
            if before and blocked and not self._is_behind(place, waiter, waiter.mask):
                last, filled, _ = self._ends(waiter)
                fronts.append((waiter, self._until(waiter, last, filled)))
        return self._gap(tenant, fronts)
