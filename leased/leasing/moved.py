"""A tenant whose processes are on another device: everything that names the device follows."""

from __future__ import annotations

from collections.abc import Collection

from leased.core.events import Closed, Parked, PolicyRestored, UsageRestored
from leased.leasing.leases import Leases
from leased.leasing.registry import opened
from leased.leasing.tenant import Tenant
from leased.wire import daemon_messages


def stays(tenant: Tenant) -> None:
    """It is where it was: tell its processes that the move is over."""
    uuid = tenant.gang[0]
    tenant.tell_all(daemon_messages.moved(uuid, uuid))


def arrives(tenant: Tenant, old: str, uuid: str, total: int) -> dict[str, int]:
    """By UUID, what it sees of its devices when it has `uuid` instead of the old one. It has more
    than these where processes that began meanwhile use one that it had before."""
    others = {u: size for u, size in tenant.totals.items() if u not in (old, uuid)}
    return {uuid: total, **others}


def moved(
    leases: Leases, tenant: Tenant, old: str, totals: dict[str, int], pids: Collection[int]
) -> None:
    """It has these devices (arrives()) from now on, with what it had of the old one in its usage.
    It holds no lease and is parked for the move.

    pids: its processes that are on the first of them. Others have begun meanwhile, elsewhere.
    """
    _tell(leases, tenant, old, next(iter(totals)), pids)
    _reopen(leases, tenant, old, totals)
    for client in tenant.clients:
        client.send(leases.tenants.welcome(tenant))
    leases.slices.came(tenant)
    leases.clients.reports.changed(tenant)
    leases.clients.notice_left(tenant)
    leases.grants.request_again(tenant)


def _tell(leases: Leases, tenant: Tenant, old: str, uuid: str, pids: Collection[int]) -> None:
    for client in tenant.clients:
        there = client.pid in pids
        client.send(daemon_messages.moved(old, uuid if there else old))
        if there:
            client.memory = {uuid if u == old else u: has for u, has in client.memory.items()}
            client.details, client.runs, client.arriving = {}, {}, uuid
            if leases.claims is not None:
                leases.claims.move(client, old, uuid)


def _reopen(leases: Leases, tenant: Tenant, old: str, totals: dict[str, int]) -> None:
    """The arbiter knows a tenant by its gang, so it ends there and begins anew, with all it had."""
    job, view = tenant.job_id, leases.view
    usage, remembered = dict(view.usage(job)), view.policy_state(job)
    parked = view.tenant(job).parked
    leases.run(Closed(job))
    tenant.former |= tenant.totals
    leases.tenants.place(tenant, totals)
    tenant.believed.pop(old, None)
    leases.run(opened(tenant))
    leases.run(*(UsageRestored(job, u, used.amounts()) for u, used in usage.items()))
    if leases.tenants.understands(tenant, remembered):
        leases.run(PolicyRestored(job, *remembered))
    if parked is not None and parked.before is not None:
        leases.run(Parked(job, parked.before.by))
