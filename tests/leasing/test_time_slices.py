"""What NVML says of jobs becomes time slices, which their processes are told once, and when."""

from __future__ import annotations

import pytest
from _gpulease import ffi, lib

from leased.config.config import ClassesConfig, Config
from leased.core.events import Tick
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.leasing.time_slices import PATIENCE_NS
from leased.slices import controller
from leased.slices.job import ALWAYS, AS_MADE, LONG_US, SHORT_US, Choice, as_made
from leased.wire import client_messages
from leased.wire.device_bytes import uuid_text
from tests.support.fake_client import FakeClient
from tests.support.given import given
from tests.support.together import zip_strict

UUIDS = ["GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", "GPU-10010203-0405-0607-0809-0a0b0c0d0e0f"]
S = 1_000_000_000
LOOK_NS = S // 2
SLICE, DUTY = lib.GL_RUN_SLICE, lib.GL_RUN_DUTY
NEW = [(SLICE, AS_MADE), (DUTY, ALWAYS)]  # what a process hears first


class Process(FakeClient):
    """runs: what it was told since it was last asked, of each device."""

    def __init__(self, pid: int):
        super().__init__(pid)
        self.heard: list[tuple[str, tuple[int, ...]]] = []

    def send(self, message: bytes) -> None:
        super().send(message)
        if self.told[-1] == lib.GL_RUN:
            said = ffi.from_buffer("struct gl_run *", message)
            told = (said.kind, said.value, said.begins)
            self.heard.append(
                (uuid_text(bytes(ffi.buffer(said.uuid))), told if said.begins else told[:2])
            )

    def take(self, uuid: str = UUIDS[0]) -> list[tuple[int, ...]]:
        """What it has heard of a device since it was last asked."""
        heard, self.heard = self.heard, [one for one in self.heard if one[0] != uuid]
        return [told for of, told in heard if of == uuid]


class Node:
    """Two GPUs, and jobs on the first one, of one process each unless more are made."""

    def __init__(self, grace_ns: int = 0) -> None:
        self.now = S
        gpus = [Gpu(n, uuid, "fake", 1 << 34, 1 << 34, 0) for n, uuid in enumerate(UUIDS)]
        self.leases = Leases(gpus, lambda: self.now, first_epoch=100, grace_ns=grace_ns)
        self.slices = self.leases.slices

    def job(
        self,
        job: int,
        request: float = 0.0,
        limit: float = 1.0,
        gpus: int = 1,
        job_class: str = "none",
    ) -> Tenant:
        totals = dict.fromkeys(UUIDS[:gpus], 1 << 30)
        options = given("auto", S, request=request, limit=limit, job_class=job_class)
        tenant = Tenant(job, 1000, options, totals)
        self.leases.tenants.open(tenant)
        return tenant

    def process(self, tenant: Tenant, state: int | None = lib.GL_CHANNELS_CONTROLLED) -> Process:
        """It has a lease, or shares that of its job. state: None: it says nothing of its groups."""
        process = Process(10 * tenant.job_id + len(tenant.clients))
        self.slices.came(tenant)
        self.leases.clients.attach(tenant, process, client_messages.Hello(0, True, {}))
        if state is not None:
            self.say(tenant, process, state)
        return process

    def say(self, tenant: Tenant, process: Process, state: int) -> None:
        self.slices.said(tenant, process, client_messages.Channels(state, "MPS"))

    def look(self, times: int, *work: tuple[Process, int], busy: int | None = 100) -> None:
        for _ in range(times):
            self.now += LOOK_NS
            self.slices.measured(UUIDS[0], busy, {process.pid: part for process, part in work})

    def answer(self, tenant: Tenant, process: Process, wanted: float, ns: int = LOOK_NS) -> None:
        """It says in what part of so much more time it wanted to work."""
        said = process.progress
        busy, seen = said.busy_ns + round(wanted * ns), said.seen_ns + ns
        self.leases.clients.progress(
            tenant,
            process,
            client_messages.Progress(0, busy, seen, said.wanted_ns + busy - said.busy_ns),
        )

    def controlled(self, tenant: Tenant) -> bool:
        return self.leases.view.tenant(tenant.job_id).controlled


class Pair(Node):
    """Job 1 works in bursts, job 2 always."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = self.job(1), self.job(2)
        self.burst, self.batch = self.process(self.one), self.process(self.two)

    def settle(self, times: int = 10) -> None:
        self.look(times, (self.burst, 15), (self.batch, 85))


def test_a_process_is_told_once_what_was_chosen() -> None:
    node = Pair()
    assert node.burst.take() == node.batch.take() == NEW
    node.settle()
    assert node.burst.take() == [(SLICE, LONG_US)]
    assert node.batch.take() == [(SLICE, SHORT_US)]
    node.settle(50)
    assert node.burst.take() == node.batch.take() == []


def test_a_process_that_comes_later_or_again_is_told_at_once() -> None:
    """A former daemon may have told it something else."""
    node = Pair()
    node.settle()
    other = node.process(node.one, state=None)
    assert other.take() == []
    node.say(node.one, other, lib.GL_CHANNELS_NONE)
    assert other.take() == [(SLICE, LONG_US), (DUTY, ALWAYS)]
    node.say(node.one, other, lib.GL_CHANNELS_CONTROLLED)
    assert other.take() == []


def test_a_new_daemon_says_nothing_before_all_have_had_time_to_come_back() -> None:
    """What the one before has chosen is better than what this one knows of some of the jobs."""
    node = Node(grace_ns=10 * LOOK_NS)
    one = node.job(1)
    process = Process(10)
    node.slices.came(one)
    node.leases.clients.attach(one, process, client_messages.Hello(7, False, {}))
    node.say(one, process, lib.GL_CHANNELS_CONTROLLED)
    node.look(3, (process, 100))
    assert process.take() == []
    node.now += 100 * LOOK_NS
    node.leases.run(Tick())
    assert not node.leases.view.in_grace
    node.look(1, (process, 100))
    assert process.take() == NEW


def test_a_process_that_cannot_control_its_groups_is_told_nothing() -> None:
    node = Pair()
    node.say(node.one, node.burst, lib.GL_CHANNELS_REFUSED)
    node.burst.take()
    node.settle()
    assert node.burst.take() == []
    assert node.slices.chosen(1, UUIDS[0]).why == controller.NOT_CONTROLLED
    node.say(node.one, node.burst, lib.GL_CHANNELS_CONTROLLED)
    assert node.burst.take() == NEW
    node.settle(1)
    assert node.burst.take() == [(SLICE, LONG_US)]


def test_a_job_that_comes_finds_the_drivers_slices() -> None:
    node = Pair()
    node.settle()
    node.batch.take()
    third = node.process(node.job(3))
    assert node.batch.take() == [(SLICE, AS_MADE)]
    assert third.take() == NEW


def test_a_job_that_ends_leaves_the_drivers_slices() -> None:
    node = Pair()
    node.settle()
    node.batch.take()
    node.leases.clients.detach(node.one, node.burst)
    node.look(1, (node.batch, 100))
    assert node.batch.take() == [(SLICE, AS_MADE)]
    node.leases.tenants.close(1)
    node.leases.tenants.close(2)
    node.look(1)
    assert not any(device.controller for device in node.slices.devices.values())


@pytest.mark.parametrize(("busy", "work"), [(None, 0), (100, 0)])
def test_while_nvml_does_not_say_whose_the_work_is(busy: int | None, work: int) -> None:
    """Some cards have no sample at each look. Then the choices stay, but not for long."""
    node = Pair()
    node.settle()
    assert node.controlled(node.one)
    node.batch.take()
    for _ in range(PATIENCE_NS // LOOK_NS):
        node.look(1, (node.batch, work), busy=busy)
        assert node.batch.take() == []
    node.look(1, (node.batch, work), busy=busy)
    assert node.batch.take() == [(SLICE, AS_MADE)]
    assert node.slices.chosen(2, UUIDS[0]).why == controller.NOT_KNOWN
    assert not node.controlled(node.one)
    node.look(1, (node.batch, 1))
    assert node.controlled(node.one)


@pytest.mark.parametrize("jobs", [1, 2])
def test_where_processes_say_it_nvml_need_not(jobs: int) -> None:
    """It has no samples of a job that works in a part of the time, seconds on end."""
    node = Node()
    limited = node.job(1, limit=0.3)
    processes = [(limited, node.process(limited))]
    if jobs > 1:
        processes.append((other := node.job(2), node.process(other)))
    node.look(4, (processes[0][1], 30))
    for _ in range(5 * PATIENCE_NS // LOOK_NS):
        for tenant, process in processes:
            node.answer(tenant, process, 1.0)
        node.look(1, busy=30)
        assert node.controlled(limited)
        assert node.slices.chosen(1, UUIDS[0]).duty == 300
    node.look(1 + PATIENCE_NS // LOOK_NS, busy=30)
    assert not node.controlled(limited), "nor do processes say it any more"


def test_the_arbiter_hears_whether_all_of_a_job_can_be_controlled() -> None:
    node = Node()
    tenant = node.job(1, gpus=2)
    process = node.process(tenant)
    assert node.controlled(tenant)
    for _ in range(2):
        node.slices.measured(UUIDS[1], None, {})
        node.now += PATIENCE_NS
    node.slices.measured(UUIDS[1], None, {})
    assert not node.controlled(tenant), "of its other GPU NVML says nothing"
    node.slices.measured(UUIDS[1], 0, {})
    node.say(tenant, process, lib.GL_CHANNELS_NONE)
    node.process(tenant, state=None)
    assert node.controlled(tenant)
    other = node.process(tenant, lib.GL_CHANNELS_REFUSED)
    assert not node.controlled(tenant)
    node.leases.clients.detach(tenant, other)
    node.slices.gone(tenant)
    assert node.controlled(tenant)


def test_shares_side_by_side_are_windows_and_by_turns_they_are_not() -> None:
    """Whatever NVML says, as soon as both are there."""
    node = Node()
    one, two = node.job(1, request=0.2), node.job(2, request=0.6, limit=0.7)
    a, b = node.process(one), node.process(two)
    node.look(4, (a, 99))
    assert a.take() == [*NEW, (DUTY, 300)]
    assert b.take() == [*NEW, (DUTY, 700, 300)]
    node.say(one, a, lib.GL_CHANNELS_REFUSED)
    node.look(1, (a, 50), (b, 50))
    assert [lease.revoked for lease in node.leases.view.device(UUIDS[0]).holders] == [False, True]
    assert {node.slices.chosen(job, UUIDS[0]).runs for job in (1, 2)} == {as_made("").runs}


def test_a_job_that_says_that_it_wants_less_has_no_window() -> None:
    node = Node()
    one, two = node.job(1, request=0.5), node.job(2, request=0.5)
    a, b = node.process(one), node.process(two)
    for _ in range(6):
        node.look(1, (a, 50), (b, 50))
        node.answer(one, a, 0.2)
        node.answer(two, b, 1.0)
    assert node.slices.chosen(1, UUIDS[0]).runs == Choice(LONG_US, ALWAYS, "").runs
    assert node.slices.chosen(2, UUIDS[0]).runs == Choice(SHORT_US, ALWAYS, "").runs
    for _ in range(3):
        node.look(1, (a, 50), (b, 50))
        node.answer(one, a, 1.0)
        node.answer(two, b, 1.0)
    assert [node.slices.chosen(job, UUIDS[0]).duty for job in (1, 2)] == [500, 500]


def test_what_a_process_says_counts_for_all_its_devices() -> None:
    """It is asked for each of them, and has nothing new to say the second time."""
    node = Node()
    wide, two = node.job(1, request=0.5, gpus=2), node.job(2, request=0.5, gpus=2)
    a, b = node.process(wide), node.process(two)
    for _ in range(6):
        node.now += LOOK_NS
        for uuid in UUIDS:
            node.slices.measured(uuid, 100, {a.pid: 99})
        for tenant, process, wanted in ((wide, a, 0.2), (two, b, 1.0)):
            node.answer(tenant, process, wanted)
            node.answer(tenant, process, 1.0, ns=1000)
    assert [node.slices.chosen(1, uuid).runs for uuid in UUIDS] == [
        Choice(LONG_US, ALWAYS, "").runs
    ] * 2


def test_windows_of_jobs_on_several_devices_begin_together() -> None:
    node = Node()
    node.process(node.job(1, request=0.2))
    node.process(node.job(7, request=0.5, gpus=2))
    for uuid in UUIDS:
        node.slices.measured(uuid, 0, {})
    first = node.slices.chosen(7, UUIDS[0])
    assert (first.begins, first.duty) == (0, 650)
    assert node.slices.chosen(7, UUIDS[1]).begins == 0


def test_a_job_that_keeps_more_than_its_limit_takes_turns() -> None:
    """NVML knows whose the work is while the others have none."""
    node = Node()
    one, two = node.job(1), node.job(2, limit=0.2)
    a, b = node.process(one), node.process(two)
    for busy in (1.0, 0.0):
        assert not node.slices.disobeys(two)
        for _ in range(12):
            node.look(1, (b, 99))
            node.answer(one, a, busy)
            node.answer(two, b, 1.0)
    assert node.slices.disobeys(two)
    assert not node.controlled(two)
    assert node.controlled(one)


def test_a_job_that_keeps_to_its_limit_may_leave_work_that_waits() -> None:
    """NVML takes the device for busy, as with graphs on an H200."""
    node = Node()
    tenant = node.job(1, limit=0.3)
    process = node.process(tenant)
    for _ in range(20):
        node.look(1, (process, 30))
        node.answer(tenant, process, 1.0)
    assert not node.slices.disobeys(tenant)


def test_many_looks_send_next_to_nothing() -> None:
    """256 processes of four jobs, whose use changes a little all the time."""
    node = Node()
    jobs = [node.job(number) for number in range(1, 5)]
    processes = [[node.process(tenant) for _ in range(64)] for tenant in jobs]
    told = [process for one in processes for process in one]
    for process in told:
        process.take()
    for step in range(200):
        parts = [20 + (step * 7 + n * 3) % 5 for n in range(4)]
        node.look(1, *((one[0], part) for one, part in zip_strict(processes, parts)))
    assert max(len(process.take()) for process in told) <= 6


def test_what_the_site_allows_counts_from_the_start() -> None:
    """The daemon calls this as it starts, and a reload calls it again."""
    node = Node()
    node.leases.use_limits(Config(online_slowdown=0.2, classes=ClassesConfig(controller="pid")))
    assert (node.slices.slowdown, node.slices.by) == (0.2, "pid")
