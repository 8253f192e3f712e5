"""Parks a job: all its memory is evicted until its next launch. Its user and root may do it."""

from __future__ import annotations

from leased.api import answers
from leased.base.errors import Refused
from leased.base.requests import Request, get_int
from leased.core.tenant_events import Parked, Unparked
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.processes.identity import Peer
from leased.store.records import LAST_JOB

USER = "user "  # followed by the uid of the user who has parked the job


def park(leases: Leases, request: Request, peer: Peer) -> Tenant:
    """Evict all memory of the job now."""
    tenant = _named(leases, request, peer)
    leases.run(Parked(tenant.job_id, f"{USER}{peer.uid}"))
    return tenant


def unpark(leases: Leases, request: Request, peer: Peer) -> Tenant:
    """Restore the memory of a parked job before its next launch, as far as there is room."""
    tenant = _named(leases, request, peer)
    parked = leases.view.tenant(tenant.job_id).parked
    if parked is not None and parked.suspended:
        raise Refused(f"job {tenant.job_id} is suspended", "use scontrol resume")
    leases.run(Unparked(tenant.job_id))
    return tenant


def shown(leases: Leases, tenant: Tenant) -> answers.Parked | None:
    """Since when the job is parked, and by whom; None: it is not."""
    parked = leases.view.tenant(tenant.job_id).parked
    if parked is None:
        return None
    return {"since_s": round((leases.clock() - parked.since) / 1e9, 3), "by": parked.by}


def _named(leases: Leases, request: Request, peer: Peer) -> Tenant:
    """The job, if it is this user's or root asks. Others are refused as unknown jobs are."""
    job_id = get_int(request, "job_id", 1, LAST_JOB)
    tenant = leases.tenants.get(job_id)
    if tenant is None or peer.uid not in (0, tenant.uid):
        raise Refused(
            f"job {job_id} is not a job of yours that shares a GPU of this node",
            "gpu-leasectl mine lists those that do",
        )
    return tenant
