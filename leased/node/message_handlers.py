"""What a client may say after its HELLO, and which part of the daemon hears it.

Amounts are bounded here: what a client says is of an unprivileged process and may be anything.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from _gpulease import lib

from leased.connections import limits
from leased.connections.accounts import Account
from leased.copies.node_memory import Asker
from leased.copies.pool import Job
from leased.leasing import waiting_reason
from leased.leasing.introductions import KEEPER, Named
from leased.leasing.leases import Leases
from leased.leasing.tenant import Client, Tenant
from leased.wire import client_messages, daemon_messages


class Sender(Asker, Named, Client, Protocol):
    """The process that says it. account: what its time is charged to; None: it is not counted."""

    @property
    def account(self) -> Account | None: ...


Handler = Callable[[Leases, Sender, Tenant, Any], None]


def handle(
    leases: Leases, client: Sender, tenant: Tenant, message: client_messages.Message
) -> None:
    """Do what the message asks for. KeyError: it is a HELLO."""
    HANDLERS[type(message)](leases, client, tenant, message)
    # It may wait for, hold or have something else than before.
    leases.tenants.steps.see(tenant.job_id, (client,))


def client_gone(leases: Leases, client: Sender, tenant: Tenant) -> None:
    """The connection has ended: nothing of what its client wanted or held is left."""
    leases.clients.detach(tenant, client)
    leases.slices.gone(tenant)
    if leases.claims is not None:
        leases.claims.forget(client)
    if leases.copies is not None and client.process is not None:
        leases.copies.connection_ended(client.process)


def _memory(
    leases: Leases, client: Sender, tenant: Tenant, message: client_messages.Memory
) -> None:
    bounded = message._replace(memory=limits.clamped(message.memory, leases.gpus.by_uuid))
    leases.clients.memory(tenant, client, bounded)


def _why(leases: Leases, client: Sender, tenant: Tenant, _: client_messages.Why) -> None:
    why = waiting_reason.reason(leases, tenant)
    client.send(daemon_messages.waits(why.code, why.text))


def _meet(leases: Leases, client: Sender, tenant: Tenant, message: client_messages.Meet) -> None:
    if client.account is not None:
        client.account.spend(limits.MEETING_COST_S)

    def lends(other: Tenant) -> bool:
        one = other is tenant
        return one or leases.view.hold_together(tenant.job_id, other.job_id)

    chain = leases.tenants.kin(tenant)
    kin = ((lends(t), c) for t in chain for c in t.clients if isinstance(c, type(client)))
    met = leases.introductions.meet(kin, client, message)
    for other in chain if met is not None and message.name != KEEPER else ():
        theirs: list[Named] = [c for c in other.clients if isinstance(c, type(client))]
        client.borrows |= other is not tenant and met in theirs and lends(other)


def _copies(
    leases: Leases,
    client: Sender,
    tenant: Tenant,
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


def _saves(_: Leases, client: Sender, __: Tenant, message: client_messages.Saves) -> None:
    client.saved_at = message.at


def _ready(_: Leases, client: Sender, __: Tenant, ___: client_messages.Ready) -> None:
    client.ready = True


def _claim(leases: Leases, client: Sender, tenant: Tenant, message: client_messages.Claim) -> None:
    """The client is about to allocate. On a device outside of its job's gang it always may."""
    desk, size = leases.claims, min(message.bytes, limits.BYTES_MOST)
    bounded = message._replace(bytes=size, least=min(message.least, size))
    if desk is None or not tenant.swaps or message.uuid not in tenant.gang:
        granted = daemon_messages.claimed(lib.GL_CLAIM_GRANTED, message.number, message.uuid, size)
        client.send(granted)
    else:
        most = tenant.totals[message.uuid]
        bounded = bounded._replace(bytes=min(size, most), least=min(bounded.least, most))
        desk.claim(client, tenant.job_id, bounded)


def _details(
    leases: Leases, client: Sender, tenant: Tenant, message: client_messages.Details
) -> None:
    fixed = {why: min(size, limits.BYTES_MOST) for why, size in message.fixed.items()}
    left = min(message.left, tenant.totals.get(message.uuid, 0))
    leases.clients.details(tenant, client, message._replace(left=left, fixed=fixed))


HANDLERS: dict[type[client_messages.Message], Handler] = {
    client_messages.Memory: _memory,
    client_messages.Request: lambda leases, client, tenant, _: leases.clients.request(
        tenant, client
    ),
    client_messages.Stuck: lambda leases, client, tenant, message: leases.clients.stuck_in_drain(
        tenant, client, message
    ),
    client_messages.Restored: lambda leases, client, tenant, message: leases.clients.restored(
        tenant, client, message
    ),
    client_messages.Progress: lambda leases, client, tenant, message: leases.clients.progress(
        tenant, client, message
    ),
    client_messages.Rests: lambda leases, client, tenant, _: leases.slices.rests(
        tenant, client, True
    ),
    client_messages.Works: lambda leases, client, tenant, _: leases.slices.rests(
        tenant, client, False
    ),
    client_messages.Released: lambda leases, client, tenant, message: leases.clients.released(
        tenant, client, message
    ),
    client_messages.Suspends: lambda leases, _, tenant, __: leases.clients.suspends(tenant),
    client_messages.Signalled: lambda leases, _, tenant, __: leases.clients.signalled(tenant),
    client_messages.Saves: _saves,
    client_messages.Ready: _ready,
    client_messages.Stranded: lambda leases, client, tenant, _: leases.clients.on_stranded(
        tenant, client
    ),
    client_messages.Parts: lambda leases, client, tenant, _: leases.chains.parts.said(
        tenant, client
    ),
    client_messages.Name: lambda leases, client, _, message: leases.introductions.named(
        client, message
    ),
    client_messages.Why: _why,
    client_messages.Meet: _meet,
    client_messages.HostTake: _copies,
    client_messages.HostGive: _copies,
    client_messages.Claim: _claim,
    client_messages.Details: _details,
    client_messages.Channels: lambda leases, client, tenant, message: leases.slices.said(
        tenant, client, message
    ),
}
