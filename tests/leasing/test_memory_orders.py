"""Which process of a job is told to give up how much of its memory."""

from __future__ import annotations

from leased.core.actions import Evict
from leased.leasing import memory_orders
from leased.leasing.tenant import Tenant
from leased.wire import daemon_messages
from leased.wire.device_bytes import DeviceBytes
from tests.connections.test_limits import GB, UUID
from tests.support.fake_client import FakeClient
from tests.support.given import given


class Heard(FakeClient):
    """heard: the messages that it was sent. It has 4 GB."""

    def __init__(self, pid: int, resident: int):
        super().__init__(pid)
        self.memory = {UUID: DeviceBytes(resident=resident, evictable=4 * GB)}
        self.heard: list[bytes] = []

    def send(self, message: bytes) -> None:
        self.heard.append(message)


def told(evicted: int, *resident: int) -> list[list[bytes]]:
    """What the processes of a job hear that have so much on the device, each."""
    tenant = Tenant(1, 1000, given(swaps=True), {UUID: 100 * GB})
    clients = [Heard(n, has) for n, has in enumerate(resident)]
    tenant.clients.extend(clients)
    memory_orders.evict(tenant, Evict(1, UUID, evicted))
    memory_orders.send_evictions(tenant, [tenant])
    return [client.heard for client in clients]


def evict(size: int) -> list[bytes]:
    return [daemon_messages.evict({UUID: size})]


def test_each_gives_up_what_it_has_on_the_device() -> None:
    assert told(3 * GB, 2 * GB, 0, 2 * GB) == [evict(2 * GB), [], evict(GB)]


def test_who_may_be_restoring_its_memory_gives_up_that() -> None:
    assert told(6 * GB, 0, 0) == [evict(4 * GB), evict(2 * GB)]
    assert told(5 * GB, 0, 3 * GB) == [evict(2 * GB), evict(3 * GB)]
