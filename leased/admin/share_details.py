"""What status and mine say of a job's share of its GPUs' time."""

from __future__ import annotations

from leased.api.answers import Share
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant


def of_tenant(leases: Leases, tenant: Tenant) -> Share | None:
    """None: the job requests nothing and has no limit."""
    given = tenant.given
    if not given.has_share:
        return None
    state, rules = leases.view.tenant(tenant.job_id), leases.view.rules
    # So long they are at least, as the memory of its next one takes long to move.
    turn_ns = rules.floor_ns(rules.handoff_ns(state))
    until = state.barred_until
    return {
        "request": given.request,
        "limit": given.limit,
        "limited_s": None if until is None else round(max(0, until - leases.clock()) / 1e9, 3),
        "lacking": rules.shares.why_waiting(state),
        "turn_s": round(turn_ns / 1e9, 3) if turn_ns > given.quantum_ns else None,
    }
