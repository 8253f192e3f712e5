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
    (uuid,) = tenant.gang
    tenant.tell_all(daemon_messages.moved(uuid, uuid))


def moved(leases: Leases, tenant: Tenant, uuid: str, total: int, pids: Collection[int]) -> None:
    """It has the device `uuid` from now on, of which it sees `total` bytes, with what it had of
    the former one in its usage. It holds no lease and is parked for the move.

    pids: its processes that are there. Others have begun meanwhile, on the former device.
    """
    (old,) = tenant.gang
    _tell(leases, tenant, old, uuid, pids)
    _reopen(leases, tenant, old, {uuid: total})
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
