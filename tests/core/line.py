"""What tests ask about the line of waiters and about actions, and the arbiter does not."""

from __future__ import annotations

from leased.core.actions import Action
from leased.core.arbiter import Arbiter
from leased.core.rules import BACKFILL_NS, HANDOFF_SHARE
from leased.core.state import Tenant


def queue(a: Arbiter) -> list[int]:
    """Tenants that wait: who is next, then those who could not run, as they came."""
    waiting = [tenant for tenant in a.tenants.values() if tenant.waiting]
    waiting.sort(key=lambda t: (t.place is None, t.place or t.arrival))
    return [tenant.id for tenant in waiting]


def worth(a: Arbiter, tenant: Tenant) -> int:
    """A lease for less time would be spent on the handoff, ns."""
    return max(BACKFILL_NS, HANDOFF_SHARE * a.rules.handoff_ns(tenant))


def of(kind: type, actions: list[Action]) -> list[int]:
    """The tenants that such actions are for."""
    return [action.tenant for action in actions if isinstance(action, kind)]
