"""A process that was killed is shown by NVML for a moment longer, and is no stranger meanwhile."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from leased.gpus.devices import Gpu, visible
from leased.leasing.leases import Leases
from leased.leasing.memory_reports import LOOKS, Departed
from leased.leasing.tenant import Tenant
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.given import given

MIB = 1 << 20
SIZE = 256 * MIB
CONTEXT = 2 * MIB
UUID = "GPU-00000000-0000-0000-0000-000000000000"
LOOK_NS = 500_000_000


class Node:
    """Jobs 1 and 2 with a process each on one device, of which NVML shows 100 MiB each."""

    def __init__(self) -> None:
        self.now = 0
        self.gpu = Gpu(0, UUID, "card", SIZE, SIZE)
        self.leases = Leases([self.gpu], lambda: self.now)
        self.shown: dict[int, int] = {}
        self.processes = [self.begins(job) for job in (1, 2)]
        self.look()
        self.look()

    def begins(self, job: int) -> FakeClient:
        process = FakeClient(10 + job)
        self.leases.tenants.open(Tenant(job, 1000, given(), {UUID: SIZE}))
        self.connects(job, process)
        self.shown[process.pid] = 100 * MIB + CONTEXT
        return process

    def connects(self, job: int, process: FakeClient) -> None:
        hello = client_messages.Hello(0, False, {UUID: DeviceBytes(0, 100 * MIB)})
        self.leases.clients.attach(self.leases.tenants[job], process, hello)

    def leaves(self, job: int, process: FakeClient) -> None:
        self.leases.clients.detach(self.leases.tenants[job], process)

    def look(self, times: int = 1, unconnected: Collection[int] = ()) -> None:
        for _ in range(times):
            self.now += LOOK_NS
            self.leases.gpus.update(self.gpu, dict(self.shown), unconnected)

    @property
    def taken(self) -> int:
        """Bytes that count as nobody's, contexts among them."""
        return self.leases.gpus.overheads[UUID].taken

    @property
    def total(self) -> int:
        """What a job that begins now sees for good."""
        return visible(self.gpu, self.leases.gpus.overheads[UUID], 3)

    @property
    def fits(self) -> bool:
        return self.leases.view.device(UUID).residency.fits()


def test_memory_of_a_killed_process_is_no_strangers() -> None:
    node = Node()
    assert node.taken == 2 * CONTEXT
    room = node.leases.view.device(UUID).residency.room
    node.leaves(1, node.processes[0])
    for _ in range(LOOKS):
        node.look()
        assert node.taken == 2 * CONTEXT
        assert node.leases.view.device(UUID).residency.room == room
        assert node.fits
    del node.shown[11]
    node.look()
    assert node.taken == CONTEXT


def test_nor_that_of_a_job_that_has_ended() -> None:
    node = Node()
    tenant = node.leases.tenants[1]
    node.leases.tenants.close(1)
    node.leases.clients.detach(tenant, node.processes[0])
    node.look()
    assert node.taken == 2 * CONTEXT


def test_a_process_that_runs_on_without_a_connection_is_counted() -> None:
    node = Node()
    node.leaves(1, node.processes[0])
    node.look(LOOKS + 1)
    assert node.taken == 100 * MIB + 2 * CONTEXT


@pytest.mark.parametrize(("unconnected", "counted"), [({11}, 4 * MIB), (set(), 100 * MIB)])
def test_what_a_job_s_process_has_is_in_no_total_for_good(
    unconnected: set[int], counted: int
) -> None:
    """As of a process that was stopped when the daemon ended, and cannot connect to the next."""
    node = Node()
    before = node.total
    node.leaves(1, node.processes[0])
    node.look(LOOKS + 1, unconnected)
    assert node.taken == 100 * MIB + 2 * CONTEXT
    assert before - node.total == pytest.approx(counted, abs=4 * MIB)


def test_a_process_that_connects_again_is_its_jobs_as_before() -> None:
    node = Node()
    node.leaves(1, node.processes[0])
    node.look()
    node.connects(1, node.processes[0])
    node.look(3 * LOOKS)
    assert node.taken == 2 * CONTEXT


def test_connecting_again_and_again_hides_nothing() -> None:
    departed = Departed()
    found = []
    for _ in range(3 * LOOKS):
        departed.connection_ended(7)
        found.append(departed.still_shown({7}, set()))
        departed.still_shown({7}, {7})
    assert found == [{7}] * LOOKS + [set()] * (2 * LOOKS)


def test_a_number_that_was_not_shown_meanwhile_is_another_process() -> None:
    departed = Departed()
    departed.connection_ended(7)
    assert departed.still_shown({8}, set()) == set()
    assert departed.still_shown({7}, set()) == set()
