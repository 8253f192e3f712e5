"""What a client may say after its HELLO, and which part of the daemon hears it.

Amounts are bounded here: what a client says is of an unprivileged process and may be anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _gpulease import lib

from leased.connections import limits
from leased.copies.pool import Job
from leased.leasing import waiting_reason
from leased.leasing.introductions import KEEPER
from leased.leasing.leases import Leases
from leased.leasing.tenant import Client, Tenant
from leased.wire import client_messages, daemon_messages

Handler = Callable[[Leases, Tenant, Client, Any], None]


def handle(
    leases: Leases, tenant: Tenant, client: Client, message: client_messages.Message
) -> None:
    """Do what the message asks for. KeyError: it is a HELLO."""
    HANDLERS[type(message)](leases, tenant, client, message)
    # It may wait for, hold or have something else than before.
    leases.tenants.steps.see(tenant.job_id, (client,))


def client_gone(leases: Leases, tenant: Tenant, client: Client) -> None:
    """The connection has ended: nothing of what its client wanted or held is left."""
    leases.clients.detach(tenant, client)
    leases.slices.gone(tenant)
    if leases.claims is not None:
        leases.claims.forget(client)
    if leases.copies is not None and client.process is not None:
        leases.copies.connection_ended(client.process)


def _memory(
    leases: Leases, tenant: Tenant, client: Client, message: client_messages.Memory
) -> None:
    bounded = message._replace(memory=limits.clamped(message.memory, leases.gpus.by_uuid))
    leases.clients.memory(tenant, client, bounded)


def _why(leases: Leases, tenant: Tenant, client: Client, _: client_messages.Why) -> None:
    why = waiting_reason.reason(leases, tenant)
    client.send(daemon_messages.waits(why.code, why.text))


def _name(_: Leases, __: Tenant, client: Client, message: client_messages.Name) -> None:
    """Other processes of its chain can find the client by this name from now on."""
    client.name = message.name
    client.send(daemon_messages.NAMED)


def _meet(leases: Leases, tenant: Tenant, client: Client, message: client_messages.Meet) -> None:
    if client.account is not None:
        client.account.spend(limits.MEETING_COST_S)

    def lends(other: Tenant) -> bool:
        one = other is tenant
        return one or leases.view.hold_together(tenant.job_id, other.job_id)

    chain = leases.tenants.kin(tenant)
    kin = ((lends(other), process) for other in chain for process in other.clients)
    met = leases.introductions.meet(kin, client, message)
    for other in chain if met is not None and message.name != KEEPER else ():
        client.borrows |= other is not tenant and met in other.clients and lends(other)


def _copies(
    leases: Leases,
    tenant: Tenant,
    client: Client,
    message: client_messages.HostTake | client_messages.HostGive,
) -> None:
    """The client asks for host memory for copies, or gives some back."""
    memory = leases.copies
    if memory is None or not tenant.swaps:
        client.send(daemon_messages.host(lib.GL_HOST_FAILED, message.number, 0))
    elif isinstance(message, client_messages.HostTake):
        memory.take(client, Job(tenant.job_id, tenant.uid, tenant.host_most), message)
    else:
        memory.give(client, tenant.job_id, message)


def _saves(_: Leases, __: Tenant, client: Client, message: client_messages.Saves) -> None:
    client.saved_at = message.at


def _ready(_: Leases, __: Tenant, client: Client, ___: client_messages.Ready) -> None:
    client.ready = True


def _claim(leases: Leases, tenant: Tenant, client: Client, message: client_messages.Claim) -> None:
    """The client is about to allocate. On a device outside of its job's gang it always may."""
    desk, size = leases.claims, min(message.bytes, limits.BYTES_MOST)
    uuid = client.arriving or message.uuid  # it may have said this before it knew that it was moved
    bounded = message._replace(uuid=uuid, bytes=size, least=min(message.least, size))
    if desk is None or not tenant.swaps or uuid not in tenant.gang:
        client.send(daemon_messages.claimed(lib.GL_CLAIM_GRANTED, message.number, uuid, size))
    else:
        most = tenant.totals[uuid]
        bounded = bounded._replace(bytes=min(size, most), least=min(bounded.least, most))
        desk.claim(client, tenant.job_id, bounded)


def _details(
    leases: Leases, tenant: Tenant, client: Client, message: client_messages.Details
) -> None:
    fixed = {why: min(size, limits.BYTES_MOST) for why, size in message.fixed.items()}
    left = min(message.left, tenant.totals.get(message.uuid, 0))
    leases.clients.details(tenant, client, message._replace(left=left, fixed=fixed))


HANDLERS: dict[type[client_messages.Message], Handler] = {
    client_messages.Memory: _memory,
    client_messages.Request: lambda leases, tenant, client, _: leases.clients.request(
        tenant, client
    ),
    client_messages.Stuck: lambda leases, *said: leases.clients.stuck_in_drain(*said),
    client_messages.Restored: lambda leases, *said: leases.clients.restored(*said),
    client_messages.Progress: lambda leases, *said: leases.clients.progress(*said),
    client_messages.Rests: lambda leases, tenant, client, _: leases.slices.rests(
        tenant, client, True
    ),
    client_messages.Works: lambda leases, tenant, client, _: leases.slices.rests(
        tenant, client, False
    ),
    client_messages.Released: lambda leases, *said: leases.clients.released(*said),
    client_messages.Suspends: lambda leases, tenant, *_: leases.clients.suspends(tenant),
    client_messages.Signalled: lambda leases, tenant, *_: leases.clients.signalled(tenant),
    client_messages.Saves: _saves,
    client_messages.Ready: _ready,
    client_messages.Stranded: lambda leases, tenant, client, _: leases.clients.on_stranded(
        tenant, client
    ),
    client_messages.Parts: lambda leases, tenant, client, _: leases.chains.parts.said(
        tenant, client
    ),
    client_messages.Name: _name,
    client_messages.Why: _why,
    client_messages.Meet: _meet,
    client_messages.HostTake: _copies,
    client_messages.HostGive: _copies,
    client_messages.Claim: _claim,
    client_messages.Details: _details,
    client_messages.Channels: lambda leases, *said: leases.slices.said(*said),
}
