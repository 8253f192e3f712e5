"""Parks a job: all its memory is evicted until its next launch. Its user and root may do it."""

from __future__ import annotations

from leased.api import answers
from leased.base.errors import Refused
from leased.base.requests import Request, get_job
from leased.core.events import Parked, Unparked
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.processes.identity import Peer

USER = "user "  # followed by the uid of the user who has parked the job


def park(leases: Leases, request: Request, peer: Peer) -> list[Tenant]:
    """Evict all memory of the job now; of all tasks of an array that are here."""
    found = own_jobs(leases, request, peer)
    for tenant in found:
        leases.run(Parked(tenant.job_id, f"{USER}{peer.uid}"))
    return found


def unpark(leases: Leases, request: Request, peer: Peer) -> list[Tenant]:
    """Restore the memory of a parked job before its next launch, as far as there is room."""
    found = own_jobs(leases, request, peer)
    for tenant in found:
        parked = leases.view.tenant(tenant.job_id).parked
        if parked is not None and parked.by in (answers.MOVE, answers.CHECKPOINT):
            raise Refused(f"job {tenant.job} is parked by {parked.by}", "wait for its end")
        if parked is not None and parked.suspended:
            raise Refused(f"job {tenant.job} is suspended", "use scontrol resume")
    for tenant in found:
        leases.run(Unparked(tenant.job_id))
    return found


def shown(leases: Leases, tenant: Tenant) -> answers.Parked | None:
    """Since when the job is parked, and by whom; None: it is not."""
    parked = leases.view.tenant(tenant.job_id).parked
    if parked is None:
        return None
    return {"since_s": round((leases.clock() - parked.since) / 1e9, 3), "by": parked.by}


def own_jobs(leases: Leases, request: Request, peer: Peer) -> list[Tenant]:
    """The job, or all tasks of an array, that are this user's or root asks for. Others are refused
    as unknown jobs are."""
    asked = get_job(request, "job_id")
    found = [t for t in leases.tenants.named(asked) if peer.uid in (0, t.uid)]
    if not found:
        words = f"job {asked} is not a job of yours that shares a GPU of this node"
        raise Refused(words, "gpu-leasectl mine lists those that do")
    return found
