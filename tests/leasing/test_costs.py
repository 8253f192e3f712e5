"""What handoffs and jobs that rest cost, counted in calls, which no load of the machine changes."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType

from leased.core.actions import Action
from leased.core.events import Tick
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.node import message_handlers
from leased.wire.client_messages import Hello, Memory, Released, Request
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.given import given

S = 1_000_000_000
MIB = 1 << 20
GPU = Gpu(0, "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "fake", 1 << 34, 1 << 34, 0)
PROCESSES = 4
MOST_CALLS = 340  # of Python functions, of a handoff between jobs of so many processes


class Node:
    """A GPU, and jobs of four processes that take turns."""

    def __init__(self) -> None:
        self.now = S
        self.leases = Leases([GPU], lambda: self.now)

    def job(self, number: int) -> list[FakeClient]:
        tenant = Tenant(number, number, given("on", S), {GPU.uuid: 1 << 30})
        self.leases.tenants.open(tenant)
        processes = [FakeClient(10 * number + n) for n in range(PROCESSES)]
        for process in processes:
            self.leases.clients.attach(tenant, process, Hello(0, False, {}))
            self.hears(number, process, Memory({GPU.uuid: DeviceBytes(MIB)}))
        return processes

    def hears(self, job: int, process: FakeClient, message: Memory | Released | Request) -> None:
        tenant = self.leases.tenants[job]
        message_handlers.handle(self.leases, tenant, process, message)

    def hand_over(self, job: int, processes: list[FakeClient]) -> None:
        """The quantum of this job is over, and it wants the next one at once."""
        self.now += S
        self.leases.run(Tick())
        for process in processes:
            restored = Released(process.held, MIB, 20_000, wants=True)
            self.hears(job, process, restored)


def calls(work: Callable[[], object]) -> int:
    """Of Python functions of the daemon."""
    found = 0

    def seen(frame: FrameType, kind: str, _: object) -> None:
        nonlocal found
        found += kind == "call" and "/leased/" in frame.f_code.co_filename

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_a_handoff_is_a_few_calls() -> None:
    node = Node()
    jobs = {number: node.job(number) for number in (1, 2, 3)}
    for number, processes in jobs.items():
        for process in processes:
            node.hears(number, process, Request())
    for number in (1, 2, 3):  # the memory of all has been there once
        node.hand_over(number, jobs[number])
    assert [process.held > 0 for process in jobs[1]] == PROCESSES * [True]
    assert calls(lambda: node.hand_over(1, jobs[1])) <= MOST_CALLS
    assert [process.held > 0 for process in jobs[2]] == PROCESSES * [True]


def test_a_restore_of_little_memory_is_no_event() -> None:
    """It says nothing of the link (speed.py)."""
    node = Node()
    processes, events = node.job(1), []
    take = node.leases.loop.arbiter.handle

    def handle(event: object, now: int) -> list[Action]:
        events.append(type(event).__name__)
        return take(event, now)  # type: ignore[arg-type]

    for process in processes:
        node.hears(1, process, Request())
    node.leases.loop.arbiter.handle = handle  # type: ignore[method-assign]
    for process in processes[:-1]:
        node.hears(1, process, Released(process.held, 15 * MIB, 1_000_000))
    assert events == []
    node.hears(1, processes[-1], Released(processes[-1].held, 16 * MIB, 1_000_000))
    assert events == ["SpeedMeasured", "Released"]


def test_nothing_is_looked_at_again_that_says_the_same() -> None:
    """Twice a second NVML is asked; where it and all processes say what they said, that is all."""
    node = Node()
    processes = node.job(1)
    shown = {process.pid: 1 << 20 for process in processes}
    first = calls(lambda: node.leases.gpus.update(GPU, shown))
    node.leases.gpus.update(GPU, shown)
    assert calls(lambda: node.leases.gpus.update(GPU, shown)) < first / 4
    node.hears(1, processes[0], Memory({GPU.uuid: DeviceBytes(2 * MIB)}))
    assert calls(lambda: node.leases.gpus.update(GPU, shown)) > first / 2
    node.leases.gpus.update(GPU, shown)
    assert calls(lambda: node.leases.gpus.update(GPU, shown | {7: MIB})) > first / 2
