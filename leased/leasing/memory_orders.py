"""Tells a tenant what to do with its memory. Amounts, in bytes, are divided among its processes."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping

from leased.core.actions import Evict, Expect, Leave, Preload
from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages
from leased.wire.device_bytes import DeviceBytes

NOTHING = DeviceBytes()
Part = Callable[[DeviceBytes], int]
RESIDENT, MOVABLE = operator.attrgetter("resident"), operator.attrgetter("evictable")


def preload(tenant: Tenant, action: Preload) -> None:
    """It may restore so many bytes to the device before its turn."""
    _divide(tenant, {action.device: action.bytes}, daemon_messages.preload, _absent)


def expect(tenant: Tenant, action: Expect) -> None:
    """It may have to evict so many bytes from the device soon."""
    _divide(tenant, {action.device: action.bytes}, daemon_messages.expect, RESIDENT)


def make_ready(tenant: Tenant) -> None:
    """Its processes have host memory made for all that can leave, and say READY then."""
    amounts = dict.fromkeys(tenant.gang, sys.maxsize)
    for client, own in _parts(tenant, amounts, RESIDENT):
        client.ready = False
        client.send(daemon_messages.expect(own, tells=True))


def ahead(tenant: Tenant, amounts: Mapping[str, int]) -> list[tuple[Client, dict[str, int]]]:
    """By process, how many of these bytes it may have to evict, by device."""
    return list(_parts(tenant, amounts, MOVABLE))


def evict(tenant: Tenant, action: Evict) -> None:
    """It must evict so many bytes from the device, when send_evictions() says so."""
    tenant.evictions[action.device] = tenant.evictions.get(action.device, 0) + action.bytes


def leave(tenant: Tenant, _: Leave) -> None:
    """It must evict all its memory, when send_evictions() says so."""
    tenant.evictions.clear()
    tenant.must_leave = True


def cancel_evictions(tenant: Tenant) -> None:
    """The tenant has been granted its devices: it needs what it was going to evict."""
    tenant.evictions.clear()
    tenant.must_leave = False


def send_evictions(tenant: Tenant, kin: Iterable[Tenant]) -> None:
    """Send what has to be evicted. No process can evict while one of the tenant holds a lease, or
    one of its chain that has memory of another job open. kin: the tenants of its chain."""
    if not (tenant.evictions or tenant.must_leave):
        return
    clients = ((one is tenant or client.borrows, client) for one in kin for client in one.clients)
    if any(counts and (client.held or client.passed) for counts, client in clients):
        return
    if tenant.must_leave:
        tenant.tell_all(daemon_messages.LEAVE)
        tenant.must_leave = False
    evictions, tenant.evictions = tenant.evictions, {}
    # What is more than they have said to be there is what they may be restoring before their turn.
    _divide(tenant, evictions, daemon_messages.evict, RESIDENT, _absent)


def _absent(has: DeviceBytes) -> int:
    return max(0, has.evictable - has.resident)


def _divide(
    tenant: Tenant,
    amounts: Mapping[str, int],
    message: Callable[[Mapping[str, int]], bytes],
    *can_take: Part,
) -> None:
    """Send each process its part of the amounts, by device."""
    for client, own in _parts(tenant, amounts, *can_take):
        if any(own.values()):
            client.send(message(own))


def _parts(
    tenant: Tenant, amounts: Mapping[str, int], *can_take: Part
) -> Iterator[tuple[Client, dict[str, int]]]:
    """can_take: of what a process has, how much it can take; first all take as the first one says,
    and so on."""
    left = dict(amounts)
    parts = [(client, dict.fromkeys(left, 0)) for client in tenant.clients]
    for part in can_take:
        for client, own in parts:
            for uuid, still in left.items():
                more = min(still, part(client.memory.get(uuid, NOTHING)))
                own[uuid] += more
                left[uuid] -= more
    yield from parts
