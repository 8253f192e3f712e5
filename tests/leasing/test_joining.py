"""A process that waits while its job has a lease gets that lease, however it came to wait."""

from __future__ import annotations

from _gpulease import lib

from leased.core.events import MemoryChanged, Tick
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.wire import client_messages
from tests.support.fake_client import FakeClient
from tests.support.given import given

UUID = "GPU-00000000-0000-0000-0000-000000000000"
SIZE = 256 << 20
S = 1_000_000_000
DRAIN_NS = 10 * S


class Node:
    """Job 1 has two processes. Job 2 has one, which waits while it is told to."""

    def __init__(self) -> None:
        self.now = 0
        gpu = Gpu(0, UUID, "card", SIZE, SIZE)
        self.leases = Leases([gpu], lambda: self.now, drain_ns=DRAIN_NS)
        for job in (1, 2):
            self.leases.tenants.open(Tenant(job, 1000, given(lock="on"), {UUID: SIZE}))
        self.job, self.rival = (self.leases.tenants[job] for job in (1, 2))
        self.one, self.two = self.process(self.job, 11), self.process(self.job, 12)
        self.other = self.process(self.rival, 21)

    def process(self, tenant: Tenant, pid: int, held: int = 0) -> FakeClient:
        client = FakeClient(pid)
        self.leases.clients.attach(tenant, client, client_messages.Hello(held, False, {}))
        return client

    def request(self, tenant: Tenant, client: FakeClient) -> None:
        self.leases.clients.request(tenant, client)

    def release(self, tenant: Tenant, client: FakeClient, epoch: int, wants: bool) -> None:
        said = client_messages.Released(epoch, 0, 0, wants=wants)
        self.leases.clients.released(tenant, client, said)

    def passes(self, ns: int) -> None:
        self.now += ns
        self.leases.run(Tick())

    def epoch(self, job: int) -> int:
        lease = self.leases.view.tenant(job).lease
        return 0 if lease is None else lease.epoch


def test_a_thread_that_comes_while_an_idle_process_releases() -> None:
    """The other process of its job has the lease for as long as it likes."""
    node = Node()
    node.request(node.job, node.one)
    node.request(node.job, node.two)
    epoch = node.epoch(1)
    assert node.one.held == node.two.held == epoch
    node.release(node.job, node.one, epoch, wants=True)
    assert node.one.held == epoch


def test_a_process_that_releases_what_its_job_had_forfeited() -> None:
    node = Node()
    node.request(node.job, node.one)
    forfeited = node.epoch(1)
    node.request(node.rival, node.other)
    while node.epoch(1) == forfeited:
        node.passes(S)
    node.request(node.job, node.two)
    node.release(node.rival, node.other, node.epoch(2), wants=False)
    epoch = node.epoch(1)
    assert node.two.held == epoch != forfeited
    node.release(node.job, node.one, forfeited, wants=True)
    assert node.one.held == epoch


def test_a_process_that_comes_back_with_an_old_lease() -> None:
    node = Node()
    node.request(node.job, node.one)
    old = node.epoch(1)
    node.release(node.job, node.one, old, wants=False)
    node.request(node.job, node.two)
    epoch = node.epoch(1)
    back = node.process(node.job, 13, held=old)
    assert back.held == old != epoch
    assert lib.GL_REVOKE in back.told
    node.release(node.job, back, old, wants=True)
    assert back.held == epoch


def test_processes_hear_of_a_lease_once_the_room_for_their_managed_memory_is_there() -> None:
    """The rival's swapped memory has to leave first."""
    node = Node()
    node.leases.run(MemoryChanged(2, UUID, SIZE, 0, SIZE))
    node.leases.run(MemoryChanged(1, UUID, SIZE // 2, 0, None))
    node.request(node.job, node.one)
    node.request(node.job, node.two)
    assert node.epoch(1)
    assert node.one.held == node.two.held == 0
    node.leases.run(MemoryChanged(2, UUID, SIZE, 0, 0))
    assert node.one.held == node.two.held == node.epoch(1)
