"""Each process of a job knows what the others of its job have, so that `mem` counts for all."""

from __future__ import annotations

import pytest
from _gpulease import ffi, lib

from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.wire import client_messages, header
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.given import given

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
MIB = 1 << 20
JOB = 7


class Process(FakeClient):
    """Keeps what it is told of the others, in bytes."""

    def send(self, message: bytes) -> None:
        if header.check_header(message) == lib.GL_OTHERS:
            others = ffi.from_buffer("struct gl_memory *", message)
            self.told.append(sum(others.devices[n].bytes for n in range(others.n_devices)))


class Node:
    def __init__(self) -> None:
        self.leases = Leases([Gpu(0, UUID, "fake", 1 << 34, 1 << 34, 0)], lambda: 0)
        self.tenant = Tenant(JOB, 1000, given("on"), {UUID: 64 * MIB})
        self.leases.tenants.open(self.tenant)

    def process(self, pid: int, has: int = 0) -> Process:
        made = Process(pid)
        memory = {UUID: DeviceBytes(has)} if has else {}
        self.leases.clients.attach(self.tenant, made, client_messages.Hello(0, False, memory))
        return made


@pytest.mark.parametrize("beside", [0, 1, 2])
def test_memory_of_an_ended_process_is_free_for_the_others(beside: int) -> None:
    node = Node()
    ends, *stay = [node.process(10 + n, 8 * MIB) for n in range(2 + beside)]
    assert [process.told[-1] for process in stay] == [8 * MIB * (1 + beside)] * len(stay)
    node.leases.clients.detach(node.tenant, ends)
    assert [process.told[-1] for process in stay] == [8 * MIB * beside] * len(stay)


def test_a_jobs_only_process_is_told_of_no_others() -> None:
    node = Node()
    alone = node.process(10, 8 * MIB)
    node.leases.clients.memory(node.tenant, alone, client_messages.Memory({UUID: DeviceBytes(1)}))
    assert alone.told == []


def test_a_process_of_a_job_that_has_ended_is_told_nothing_of_it() -> None:
    node = Node()
    ends, stays = node.process(10, 8 * MIB), node.process(11, 8 * MIB)
    node.leases.tenants.close(JOB)
    before = list(stays.told)
    node.leases.clients.detach(node.tenant, ends)
    assert stays.told == before
