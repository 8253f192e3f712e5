"""Parking a job: all that it has leaves its GPUs until its next launch. Its user may, and root."""

from __future__ import annotations

from leased.api import answers
from leased.base.errors import Refused
from leased.base.requests import Request, get_int
from leased.core.tenant_events import Parked, Unparked
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.processes.identity import Peer
from leased.store.records import LAST_JOB

USER = "user "  # the number of the user who parked a job comes behind it


def park(leases: Leases, request: Request, peer: Peer) -> Tenant:
    """All that the job has leaves at once."""
    tenant = _named(leases, request, peer)
    leases.run(Parked(tenant.job_id, f"{USER}{peer.uid}"))
    return tenant


def unpark(leases: Leases, request: Request, peer: Peer) -> Tenant:
    """The job may have back what it had before it asks for it."""
    tenant = _named(leases, request, peer)
    parked = leases.view.tenant(tenant.job_id).parked
    if parked is not None and parked.suspended:
        raise Refused(f"job {tenant.job_id} is suspended", "use scontrol resume")
    leases.run(Unparked(tenant.job_id))
    return tenant


def shown(leases: Leases, tenant: Tenant) -> answers.Parked | None:
    """Since when it is parked, and who wanted it; None: it is not."""
    parked = leases.view.tenant(tenant.job_id).parked
    if parked is None:
        return None
    return {"since_s": round((leases.clock() - parked.since) / 1e9, 3), "by": parked.by}


def _named(leases: Leases, request: Request, peer: Peer) -> Tenant:
    """A job of this user, or for root anybody's. Others' are unknown, as those that never were."""
    job_id = get_int(request, "job_id", 1, LAST_JOB)
    tenant = leases.tenants.get(job_id)
    if tenant is None or peer.uid not in (0, tenant.uid):
        raise Refused(f"job {job_id} is no job of yours that shares a GPU of this node")
    return tenant
