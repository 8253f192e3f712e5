"""Host memory is made as soon as somebody could have to leave, and given back when nobody could."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from _gpulease import ffi

from leased.copies.keeper_link import KeeperLink
from leased.copies.line import KEPT_NS
from leased.copies.node_memory import NodeMemory
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.monitors.copies_ahead import LOOK_S, RATE, CopiesAhead
from leased.wire import client_messages, daemon_messages, header
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.given import given
from tests.support.together import zip_strict

GIB = 1 << 30
UUID = "GPU-00000000-0000-0000-0000-000000000000"
PIECE = 3 * GIB // 32
STEP = int(RATE * LOOK_S)


class Process(FakeClient):
    """ahead: the amounts that it was told, oldest first."""

    def __init__(self, pid: int):
        super().__init__(pid)
        self.ahead: list[int] = []

    def send(self, message: bytes) -> None:
        super().send(message)
        if header.check_header(message) == header.check_header(daemon_messages.ahead({UUID: 0})):
            self.ahead.append(ffi.from_buffer("struct gl_memory *", message).devices[0].bytes)


class Link:
    """A keeper that nobody asks. connected: it runs."""

    connected = True

    def close(self) -> None:
        pass


class Node:
    """Jobs on one GPU of 3 GiB, whose memory is swapped."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 100 * GIB
        self.leases = Leases([Gpu(0, UUID, "card", 3 * GIB, 3 * GIB, 0)], lambda: self.now)
        self.link = Link()
        loop = cast("asyncio.AbstractEventLoop", None)  # nobody asks for any
        memory = NodeMemory(cast("KeeperLink", self.link), loop, lambda: 100 * GIB)
        self.leases.keep_copies(memory, lambda: "refuse")
        self.ahead = CopiesAhead(self.leases, lambda: self.most)

    def job(self, number: int, *sizes: int, swaps: bool = True) -> list[Process]:
        """Each of its processes has so many bytes."""
        tenant = Tenant(number, 1000, given("auto", 1, swaps=swaps), {UUID: 3 * GIB})
        self.leases.tenants.open(tenant)
        processes = [Process(pid) for pid in range(10 * number, 10 * number + len(sizes))]
        for process, size in zip_strict(processes, sizes):
            has = {UUID: DeviceBytes(size, 0, size if swaps else 0)}
            self.leases.clients.attach(tenant, process, client_messages.Hello(0, False, has))
        return processes

    def beat(self, times: int = 1) -> None:
        for _ in range(times):
            self.ahead.beat()


@pytest.fixture
def node() -> Node:
    return Node()


def test_nothing_is_made_while_all_fits(node: Node) -> None:
    (first,), (second,) = node.job(1, GIB), node.job(2, 2 * GIB)
    node.beat(3)
    assert first.ahead == second.ahead == []


def test_host_memory_is_made_step_by_step(node: Node) -> None:
    (first,), (second,) = node.job(1, 2 * GIB), node.job(2, 2 * GIB)
    node.beat()
    assert first.ahead[-1] + second.ahead[-1] == STEP
    node.beat(20)
    assert first.ahead[-1] == second.ahead[-1] == GIB + PIECE
    steps = [b - a for a, b in zip([0, *first.ahead], first.ahead)]
    assert min(steps) > 0
    assert max(steps) <= STEP
    told = len(first.ahead)
    node.beat(3)
    assert len(first.ahead) == told, "it is said once"
    node.most = 0
    assert node.ahead.line.total == 2 * (GIB + PIECE)


def test_no_more_than_the_site_allows(node: Node) -> None:
    node.most = GIB
    (first,), (second,) = node.job(1, 2 * GIB), node.job(2, 2 * GIB)
    node.beat(20)
    assert first.ahead[-1] + second.ahead[-1] == GIB


def test_the_processes_of_a_job_share_it(node: Node) -> None:
    first, second = node.job(1, GIB, GIB // 2)
    node.job(2, 2 * GIB + GIB // 2)
    node.beat(20)
    assert first.ahead[-1] == GIB
    assert second.ahead[-1] == PIECE


def test_managed_memory_needs_none(node: Node) -> None:
    (first,), (second,) = node.job(1, 2 * GIB), node.job(2, 2 * GIB, swaps=False)
    node.beat(20)
    assert first.ahead[-1] == GIB + PIECE
    assert second.ahead == []


def test_it_is_given_back_when_the_other_has_ended(node: Node) -> None:
    (first,), _ = node.job(1, 2 * GIB), node.job(2, 2 * GIB)
    node.beat(20)
    node.leases.tenants.close(2)
    node.beat()
    assert first.ahead[-1] == GIB + PIECE
    node.now += KEPT_NS
    node.beat()
    assert first.ahead[-1] == 0
    assert node.ahead.line.total == 0


def test_nothing_is_asked_for_where_nobody_makes_it(node: Node) -> None:
    node.link.connected = False
    (first,), _ = node.job(1, 2 * GIB), node.job(2, 2 * GIB)
    node.beat(3)
    assert first.ahead == []


def test_a_process_that_comes_back_is_told_anew(node: Node) -> None:
    (first,), _ = node.job(1, 2 * GIB), node.job(2, 2 * GIB)
    node.beat(20)
    tenant, again = node.leases.tenants[1], Process(11)
    node.leases.clients.detach(tenant, first)
    node.leases.clients.attach(
        tenant, again, client_messages.Hello(0, False, {UUID: DeviceBytes(2 * GIB, 0, 0)})
    )
    node.beat()
    assert again.ahead == [GIB + PIECE]
