"""After a restart nothing is granted while processes that had a lease still come back."""

from __future__ import annotations

from leased.core.events import Tick
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.given import given

MS = 1_000_000
GRACE_NS = 1000 * MS
SIZE = 256 << 20
UUID = "GPU-00000000-0000-0000-0000-000000000000"
NEW = client_messages.Hello(0, True, {})
WITH_MEMORY = client_messages.Hello(0, True, {UUID: DeviceBytes(0, 100 << 20)})


class Node:
    """A restarted daemon with jobs 1 to 3, none of which has come back."""

    def __init__(self) -> None:
        self.now = 0
        gpu = Gpu(0, UUID, "card", SIZE, SIZE)
        self.leases = Leases([gpu], lambda: self.now, first_epoch=100, grace_ns=GRACE_NS)
        for job in (1, 2, 3):
            self.leases.tenants.open(Tenant(job, 1000, given(lock="on"), {UUID: SIZE}))

    def comes_back(self, ms: int, job: int, hello: client_messages.Hello) -> None:
        self.passes(ms)
        self.leases.clients.attach(self.leases.tenants[job], FakeClient(10 + job), hello)

    def passes(self, ms: int) -> None:
        self.now = ms * MS
        self.leases.run(Tick())

    def holders(self) -> list[int]:
        return [job for job in (1, 2, 3) if self.leases.view.tenant(job).lease is not None]


def test_a_holder_that_comes_back_late_keeps_its_lease() -> None:
    node = Node()
    node.comes_back(800, 2, WITH_MEMORY)
    node.passes(1100)
    assert node.holders() == []
    node.comes_back(1300, 1, client_messages.Hello(77, False, {}))
    assert node.holders() == [1]
    node.passes(4000)
    assert node.holders() == [1]


def test_the_grace_is_no_longer_for_processes_that_had_nothing() -> None:
    node = Node()
    node.comes_back(900, 2, NEW)
    node.passes(1001)
    assert node.holders() == [2]


def test_the_grace_ends_when_nobody_comes_back_any_more() -> None:
    node = Node()
    node.comes_back(900, 2, WITH_MEMORY)
    node.passes(1499)
    assert node.holders() == []
    node.passes(1501)
    assert node.holders() == [2]
