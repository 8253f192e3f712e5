"""No memory of a job leaves before all its processes have been stopped, on all its GPUs."""

from __future__ import annotations

import pytest
from _gpulease import lib

from leased.core.events import Parked, Tick
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.given import given

SIZE = 256 << 20
EACH = SIZE // 2 - (8 << 20)  # of each process on each GPU
ORDERS = {lib.GL_EVICT, lib.GL_LEAVE}


class Node:
    """Job 1 has two processes with memory on all GPUs and a lease of them."""

    def __init__(self, gpus: int) -> None:
        self.now = 0
        self.totals = {f"GPU-00000000-0000-0000-0000-{n:012}": SIZE for n in range(gpus)}
        cards = [Gpu(n, uuid, "card", SIZE, SIZE) for n, uuid in enumerate(self.totals)]
        self.leases = Leases(cards, lambda: self.now)
        self.job = self.tenant(1)
        self.first, self.second = (self.process(self.job, pid) for pid in (11, 12))
        for process in (self.first, self.second):
            self.leases.clients.request(self.job, process)
        self.epoch = self.first.held
        assert self.epoch
        assert self.second.held == self.epoch

    def tenant(self, job: int) -> Tenant:
        self.leases.tenants.open(Tenant(job, 1000, given(lock="on", swaps=True), self.totals))
        return self.leases.tenants[job]

    def process(self, tenant: Tenant, pid: int) -> FakeClient:
        client = FakeClient(pid)
        has = {uuid: DeviceBytes(resident=EACH, evictable=EACH) for uuid in self.totals}
        hello = client_messages.Hello(0, False, has if tenant.job_id == 1 else {})
        self.leases.clients.attach(tenant, client, hello)
        return client

    def another_job_comes(self) -> None:
        rival = self.tenant(2)
        other = self.other = self.process(rival, 21)
        has = {uuid: DeviceBytes(resident=0, evictable=SIZE) for uuid in self.totals}
        self.leases.clients.memory(rival, other, client_messages.Memory(has))
        self.leases.clients.request(rival, other)
        while lib.GL_REVOKE not in self.first.told:
            self.time_passes()

    def time_passes(self) -> None:
        self.now += 10**8
        self.leases.run(Tick())

    def is_parked(self) -> None:
        self.leases.run(Parked(1, "slurm"))

    def is_stopped(self, process: FakeClient) -> None:
        said = client_messages.Released(self.epoch, 0, 0, wants=True, stopped=True)
        self.leases.clients.released(self.job, process, said)

    def told_to_leave(self) -> list[bool]:
        return [bool(ORDERS & set(process.told)) for process in (self.first, self.second)]


@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize("why", ["another_job_comes", "is_parked"])
@pytest.mark.parametrize("last", ["stopped", "gone"])
def test_no_memory_leaves_while_a_process_of_the_job_holds(gpus: int, why: str, last: str) -> None:
    node = Node(gpus)
    getattr(node, why)()
    assert lib.GL_REVOKE in node.first.told
    assert lib.GL_REVOKE in node.second.told
    assert node.told_to_leave() == [False, False]
    node.is_stopped(node.first)
    assert node.told_to_leave() == [False, False]
    if last == "stopped":
        node.is_stopped(node.second)
        assert node.told_to_leave() == [True, True]
    else:
        node.leases.clients.detach(node.job, node.second)
        assert node.told_to_leave() == [True, False]


@pytest.mark.parametrize("gpus", [1, 2])
def test_nor_while_one_is_there_that_has_not_released_what_its_job_has_forfeited(gpus: int) -> None:
    """Another job has the GPUs by then, and its memory comes as far as there is room."""
    node = Node(gpus)
    node.another_job_comes()
    node.is_stopped(node.first)
    while not node.other.held:
        node.time_passes()
    assert node.told_to_leave() == [False, False]
    node.is_stopped(node.second)
    assert node.told_to_leave() == [True, True]
