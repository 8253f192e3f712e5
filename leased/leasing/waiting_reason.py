"""Why a job has no lease on its GPUs: one reason, in a sentence that names the remedy.

Nothing is decided here: this reads what the arbiter and NVML know. Most jobs wait for
their turn, which needs no reason.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from _gpulease import lib

from leased.base.words import jobs, named, size
from leased.config.options import OFFLINE, ONLINE
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant

LONGEST = 200  # characters of what other nodes are the reason for
FAULT_SHOWN = 80  # characters of what NVML says


@dataclass(frozen=True)
class Reason:
    """code: enum gl_waits_code of the wire; text: empty where it waits for its turn."""

    code: int = lib.GL_WAITS_TURN
    text: str = ""


TURN = Reason()


def reason(leases: Leases, tenant: Tenant) -> Reason:
    """Why the tenant waits, unless it only waits for its turn."""
    for ask in LOOKS:
        found = ask(leases, tenant)
        if found is not None:
            return found
    return TURN


def _named(leases: Leases, uuids: Sequence[str]) -> str:
    """ "GPU 0", "GPUs 0, 2"."""
    numbers = sorted(leases.gpus[uuid].index for uuid in uuids)
    return f"GPU{'s' if len(numbers) > 1 else ''} {jobs(numbers)}"


def _whose(leases: Leases, others: Sequence[int]) -> str:
    """Other jobs, by their names where the site lets its users see them."""
    names = [leases.tenants.name(job) for job in sorted(others)]
    return named(names) if leases.names_jobs else "another job"


def _lost(leases: Leases, tenant: Tenant) -> Reason | None:
    for uuid in tenant.gang:
        fault = leases.gpus.fault_of(uuid)
        if fault is not None:
            return Reason(
                lib.GL_WAITS_LOST,
                f"{_named(leases, [uuid])} has a fault ({fault[:FAULT_SHOWN]}); "
                "ask the administrator, or submit the job again",
            )
    return None


def _drained(leases: Leases, tenant: Tenant) -> Reason | None:
    drained = [uuid for uuid in tenant.gang if leases.view.device(uuid).state.drained]
    if not drained:
        return None
    return Reason(
        lib.GL_WAITS_DRAINED,
        f"{_named(leases, drained)} is taken out of use by the administrator; this job goes on "
        "when it is put back into use (gpu-leasectl resume)",
    )


def _crowded(leases: Leases, tenant: Tenant) -> Reason | None:
    """A tenant has too little room: memory of others cannot leave the device."""
    for uuid in tenant.gang:
        device = leases.view.device(uuid)
        if not device.residency.crowded_out(tenant.job_id):
            continue
        others = dict(device.memory())
        own = others.pop(tenant.job_id)
        stuck = [n for n, share in others.items() if share.stuck]
        fixed = [n for n, share in others.items() if share.fixed]
        if stuck:
            amount, code = sum(others[n].stuck for n in stuck), lib.GL_WAITS_STOPPED
            whose, verb = f"{_whose(leases, stuck)}, which is stopped or suspended,", "stay on"
        else:
            amount, code = sum(others[n].fixed for n in fixed), lib.GL_WAITS_CROWDED
            whose, verb = _whose(leases, fixed), "cannot leave"
        where, ends = _named(leases, [uuid]), "they are freed"
        if not stuck and _unhosted(leases, fixed, uuid) > amount // 2:
            where, ends = f"{where} for lack of host memory", "there is some"
        return Reason(
            code,
            f"{size(amount)} of {whose} {verb} {where} and leave no room for the "
            f"{size(own.bytes + own.fixed)} of this job; it goes on when {ends}",
        )
    return None


def _unhosted(leases: Leases, others: Sequence[int], uuid: str) -> int:
    """Bytes of these jobs that stay on the device for lack of host memory, as their processes
    say; of each job no more than stays there."""
    has, total = leases.view.device(uuid).memory(), 0
    for job in others:
        clients = leases.tenants[job].clients if job in leases.tenants else []
        said = [client.details[uuid].fixed for client in clients if uuid in client.details]
        total += min(has[job].fixed, sum(fixed["unhosted"] for fixed in said))
    return total


def _lacks_share(leases: Leases, tenant: Tenant) -> Reason | None:
    why = leases.view.rules.shares.why_waiting(leases.view.tenant(tenant.job_id))
    if why is None:
        return None
    return Reason(lib.GL_WAITS_SHARE, f"{why}; this job goes on when enough of them have ended")


def _behind_online(leases: Leases, tenant: Tenant) -> Reason | None:
    """Others have their turn in time; an online job has its GPUs for as long as it uses them."""
    if tenant.given.job_class != OFFLINE or leases.view.tenant(tenant.job_id).lease is not None:
        return None
    for uuid in tenant.gang:
        holders = [leases.tenants[lease.job_id] for lease in leases.view.device(uuid).holders]
        online = [other.job_id for other in holders if other.given.job_class == ONLINE]
        if online:
            return Reason(
                lib.GL_WAITS_ONLINE,
                f"{_whose(leases, online)} is online and has {_named(leases, [uuid])} for as long "
                "as it uses it; this offline job goes on when that is idle, or has ended",
            )
    return None


def _lacks_copies(leases: Leases, tenant: Tenant) -> Reason | None:
    """An allocation waits (limits.swap_full), which needs no lease."""
    if leases.copies is None or not leases.allocation_waits(tenant):
        return None
    return Reason(
        lib.GL_WAITS_COPIES,
        f"it allocates more than the {size(leases.copies.budget())} of host memory for copies on "
        "this node suffice for; it goes on when other jobs have freed memory, or have ended",
    )


def _on_several_nodes(leases: Leases, tenant: Tenant) -> Reason | None:
    """It runs on all of its nodes at once."""
    if not tenant.nodes or leases.view.tenant(tenant.job_id).runs:
        return None
    why = leases.tenants.elsewhere(tenant).why
    if not why:
        return None
    return Reason(lib.GL_WAITS_NODES, f"it runs on all of its nodes at once, and {why}"[:LONGEST])


# In the order in which they count.
LOOKS: tuple[Callable[[Leases, Tenant], Reason | None], ...] = (
    _lost,
    _drained,
    _lacks_share,
    _crowded,
    _on_several_nodes,
    _lacks_copies,
    _behind_online,
)
