"""What a tenant is told to do with its memory, divided among its processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages
from leased.wire.device_bytes import DeviceBytes

NOTHING = DeviceBytes()


def preload(tenant: Tenant, device: str, size: int) -> None:
    """Bring so many bytes to the device before its turn."""
    _divide(tenant, {device: size}, _absent, daemon_messages.preload)


def expect(tenant: Tenant, device: str, size: int) -> None:
    """Be ready to give up so many bytes of the device."""
    _divide(tenant, {device: size}, _resident, daemon_messages.expect)


def ahead(tenant: Tenant, amounts: Mapping[str, int]) -> list[tuple[Client, dict[str, int]]]:
    """What each of its processes may have to give up of these bytes, by device."""
    return list(_parts(tenant, amounts, _movable))


def evict(tenant: Tenant, device: str, size: int) -> None:
    """Give up so many bytes of the device, at once or when its lease is released."""
    tenant.evictions[device] = tenant.evictions.get(device, 0) + size
    send_evictions(tenant)


def leave(tenant: Tenant) -> None:
    """Give up all of every device, at once or when its lease is released."""
    tenant.evictions.clear()
    tenant.leaves = True
    send_evictions(tenant)


def forget(tenant: Tenant) -> None:
    """What it was to give up it needs now."""
    tenant.evictions.clear()
    tenant.leaves = False


def send_evictions(tenant: Tenant) -> None:
    """Say what is due. None of its processes can evict while one still holds a lease."""
    if any(client.held or client.passed for client in tenant.clients):
        return
    if tenant.leaves:
        tenant.tell_all(daemon_messages.LEAVE)
        tenant.leaves = False
    evictions, tenant.evictions = tenant.evictions, {}
    _divide(tenant, evictions, _resident, daemon_messages.evict)


def _resident(has: DeviceBytes) -> int:
    return has.resident


def _movable(has: DeviceBytes) -> int:
    return has.evictable


def _absent(has: DeviceBytes) -> int:
    return max(0, has.evictable - has.resident)


def _divide(
    tenant: Tenant,
    amounts: Mapping[str, int],
    part: Callable[[DeviceBytes], int],
    message: Callable[[Mapping[str, int]], bytes],
) -> None:
    """Each process takes as much of the tenant's amounts, by device, as its part allows."""
    for client, own in _parts(tenant, amounts, part):
        if any(own.values()):
            client.send(message(own))


def _parts(
    tenant: Tenant, amounts: Mapping[str, int], part: Callable[[DeviceBytes], int]
) -> Iterator[tuple[Client, dict[str, int]]]:
    left = dict(amounts)
    for client in list(tenant.clients):
        own = {uuid: min(left[uuid], part(client.memory.get(uuid, NOTHING))) for uuid in left}
        for uuid in left:
            left[uuid] -= own[uuid]
        yield client, own
