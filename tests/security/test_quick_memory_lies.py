"""Processes that say they have more memory than they have, or that hide some."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from _gpulease import lib

from leased.core.events import Tick
from leased.gpus.devices import CONTEXT_MOST, FIRST_CONTEXT_PART, Gpu, Overhead, visible
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient
from tests.support.given import given
from tests.support.together import pairwise, zip_strict

UUID = "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"
MIB = 1 << 20
SIZE = 256 * MIB
CONTEXT = 2 * MIB
LOOK_NS = 500_000_000
HONEST, LIAR, OTHER = 1, 2, 3


class Node:
    """One device, the jobs on it, and NVML that shows what is really there."""

    def __init__(self) -> None:
        self.now = 0
        self.gpu = Gpu(0, UUID, "fake", SIZE, SIZE)
        self.leases = Leases([self.gpu], lambda: self.now)
        self.shown: dict[int, int] = {}

    def process(self, job: int, pid: int, *, swaps: bool = False) -> FakeClient:
        if job not in self.leases.tenants:
            totals = {UUID: SIZE}
            tenant = Tenant(job, 1000 + job, given(swaps=swaps), totals)
            self.leases.tenants.open(tenant)
        client = FakeClient(pid)
        self.leases.clients.attach(
            self.leases.tenants[job], client, client_messages.Hello(0, False, {})
        )
        return client

    def says(self, job: int, client: FakeClient, *amounts: int) -> None:
        memory = client_messages.Memory({UUID: DeviceBytes(*amounts)})
        self.leases.clients.memory(self.leases.tenants[job], client, memory)

    def asks(self, job: int, client: FakeClient) -> None:
        self.leases.clients.request(self.leases.tenants[job], client)

    def pass_time(self, ns: int = LOOK_NS) -> None:
        """With the arbiter's deadlines on the way, and a look at the end."""
        end = self.now + ns
        while (due := self.leases.loop.arbiter.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.leases.run(Tick())
        self.now = end
        self.leases.gpus.update(self.gpu, dict(self.shown))  # as NVML, anew each time

    def look(self, times: int = 5) -> None:
        for _ in range(times):
            self.pass_time()


@pytest.fixture
def node() -> Node:
    """An honest job with memory:swap, of 200 MiB, which NVML shows."""
    node = Node()
    honest = node.process(HONEST, 11, swaps=True)
    node.says(HONEST, honest, 200 * MIB, 0, 0)
    node.shown[11] = CONTEXT
    node.look()
    return node


def honest_of(node: Node) -> FakeClient:
    (client,) = node.leases.tenants[HONEST].clients
    assert isinstance(client, FakeClient)
    return client


AMOUNTS = [60 * MIB, 250 * MIB, SIZE, 16 << 40]


@pytest.mark.parametrize("swaps", [False, True])
@pytest.mark.parametrize("fixed", AMOUNTS)
def test_fixed_memory_that_is_not_there_keeps_nobody_away(
    node: Node, fixed: int, swaps: bool
) -> None:
    liar = node.process(LIAR, 12, swaps=swaps)
    node.shown[12] = CONTEXT
    node.says(LIAR, liar, 0, fixed)
    node.look(1)
    node.asks(HONEST, honest_of(node))
    node.look(1)
    assert honest_of(node).held


def test_it_keeps_nobody_away_again_and_again(node: Node) -> None:
    """What is said anew by another process each time is not believed meanwhile."""
    node.asks(HONEST, honest_of(node))
    node.leases.clients.released(
        node.leases.tenants[HONEST], honest_of(node), client_messages.Released(1, 0, 0)
    )
    for pid in range(100, 120):
        liar = node.process(LIAR, pid)
        node.says(LIAR, liar, 0, SIZE)
        node.asks(HONEST, honest_of(node))
        assert honest_of(node).held
        epoch = honest_of(node).held
        node.leases.clients.released(
            node.leases.tenants[HONEST],
            honest_of(node),
            client_messages.Released(epoch, 0, 0),
        )
        node.pass_time()
        node.leases.clients.detach(node.leases.tenants[LIAR], liar)


def test_two_connections_of_one_process_have_its_memory_once(node: Node) -> None:
    node.shown[12] = 40 * MIB
    for _ in range(8):
        node.says(LIAR, node.process(LIAR, 12), 0, 40 * MIB)
    node.look(1)
    residency = node.leases.loop.arbiter.devices[UUID].residency
    assert residency.fixed == 40 * MIB
    node.asks(HONEST, honest_of(node))
    assert honest_of(node).held


def test_fixed_memory_that_is_there_counts(node: Node) -> None:
    other = node.process(OTHER, 13)
    node.says(OTHER, other, 0, 100 * MIB)
    node.shown[13] = 100 * MIB + CONTEXT
    node.look(1)
    node.asks(HONEST, honest_of(node))
    node.look()
    assert not honest_of(node).held, "it could not bring its own back"
    node.shown[13] = CONTEXT
    node.says(OTHER, other, 0, 0)
    assert honest_of(node).held


def test_room_is_made_for_an_honest_process(node: Node) -> None:
    """It says that it has fixed memory for which it only wants room, see room_appears()."""
    node.asks(HONEST, honest_of(node))
    node.leases.clients.restored(
        node.leases.tenants[HONEST], honest_of(node), client_messages.Restored(1, 0, 0)
    )
    node.says(HONEST, honest_of(node), 200 * MIB, 0, 200 * MIB)
    node.shown[11] = 200 * MIB + CONTEXT
    node.leases.clients.released(
        node.leases.tenants[HONEST], honest_of(node), client_messages.Released(1, 0, 0)
    )
    other = node.process(OTHER, 13, swaps=True)
    node.says(OTHER, other, 20 * MIB, 0, 0)
    node.asks(OTHER, other)
    assert other.held
    node.look()
    honest_of(node).told.clear()
    node.says(OTHER, other, 20 * MIB, 80 * MIB, 20 * MIB)
    assert lib.GL_EVICT in honest_of(node).told


@pytest.mark.parametrize("resident", AMOUNTS)
@pytest.mark.parametrize("flaps", [0, 1, MIB])
def test_swapped_memory_that_is_not_there_keeps_nobody_away(
    node: Node, resident: int, flaps: int
) -> None:
    """It says that it has all on the device, and gives up nothing of it."""
    liar = node.process(LIAR, 12, swaps=True)
    node.shown[12] = CONTEXT
    node.says(LIAR, liar, resident, 0, resident)
    node.asks(HONEST, honest_of(node))
    for look in range(40):  # longer than anything is waited for
        node.says(LIAR, liar, resident, 0, resident - flaps * (look % 2))
        node.look(1)
        if honest_of(node).held:
            node.leases.clients.restored(
                node.leases.tenants[HONEST],
                honest_of(node),
                client_messages.Restored(honest_of(node).held, 0, 0),
            )
    assert honest_of(node).held
    residency = node.leases.loop.arbiter.devices[UUID].residency
    assert residency.stuck <= CONTEXT


def test_a_process_that_moves_memory_is_believed_however_late_nvml_answers() -> None:
    node = Node()
    client = node.process(HONEST, 11, swaps=True)
    before = [0, 0, 100, 200, 200, 100, 0, 0, 200, 0, 200, 200, 0]  # what is there, MIB
    for then, there in pairwise(before):
        node.shown[11] = then * MIB + CONTEXT  # of a moment just after the last look
        node.says(HONEST, client, 200 * MIB, 0, there * MIB)
        node.pass_time()
    assert not node.leases.tenants[HONEST].doubted


def test_where_nvml_does_not_say_who_has_what_processes_are_believed(node: Node) -> None:
    other = node.process(OTHER, 13, swaps=True)
    node.shown[13] = 0
    node.says(OTHER, other, 100 * MIB, 60 * MIB, 100 * MIB)
    node.look()
    assert not node.leases.tenants[OTHER].doubted
    assert node.leases.loop.arbiter.devices[UUID].residency.fixed == 60 * MIB


def test_where_nvml_shows_none_of_ours_processes_are_believed() -> None:
    """It means other pids than we do, as in a container."""
    node = Node()
    client = node.process(OTHER, 13, swaps=True)
    node.shown[4711] = 200 * MIB
    node.says(OTHER, client, 100 * MIB, 60 * MIB, 100 * MIB)
    node.look()
    assert not node.leases.tenants[OTHER].doubted
    assert node.leases.loop.arbiter.devices[UUID].residency.fixed == 60 * MIB


def test_old_answers_of_nvml_confirm_nothing(node: Node) -> None:
    node.now += 60 * 10**9
    other = node.process(OTHER, 13)
    node.says(OTHER, other, 0, 60 * MIB)
    assert node.leases.loop.arbiter.devices[UUID].residency.fixed == 60 * MIB


# -- hidden memory ---------------------------------------------------------------------------


def totals(overhead: Overhead, gpu: Gpu) -> list[int]:
    """What the next three jobs see."""
    return [visible(gpu, overhead, tenants) for tenants in (2, 3, 4)]


def measured(shown: Mapping[int, int], plain: Mapping[int, int | None]) -> list[int]:
    gpu = Gpu(0, UUID, "fake", SIZE, SIZE)
    overhead = Overhead.of(gpu)
    overhead.measure(shown, plain)
    return totals(overhead, gpu)


@pytest.mark.parametrize("hidden", [60 * MIB, 140 * MIB, 250 * MIB])
def test_a_process_that_hides_memory_takes_little_of_later_jobs_totals(hidden: int) -> None:
    honest = measured({11: CONTEXT, 12: CONTEXT}, {11: 0, 12: 0})
    most = CONTEXT_MOST * SIZE // FIRST_CONTEXT_PART
    seen = measured({11: CONTEXT, 12: CONTEXT + hidden}, {11: 0, 12: 0})
    for total, before, tenants in zip_strict(seen, honest, (2, 3, 4)):
        assert before - total <= (tenants + 1) * most
        assert total >= SIZE * 3 // 4


def test_hidden_memory_is_forgotten_with_its_process() -> None:
    gpu = Gpu(0, UUID, "fake", SIZE, SIZE)
    overhead = Overhead.of(gpu)
    first = totals(overhead, gpu)
    overhead.measure({12: CONTEXT + 60 * MIB}, {12: 0})
    assert totals(overhead, gpu) != first
    overhead.measure({}, {})
    assert totals(overhead, gpu) == first
    assert overhead.taken == overhead.lasting == 0


def test_hidden_memory_leaves_less_room_while_it_is_there() -> None:
    """It is there after all: who fits with the others beside it is another matter."""
    gpu = Gpu(0, UUID, "fake", SIZE, SIZE)
    overhead = Overhead.of(gpu)
    overhead.measure({12: CONTEXT + 60 * MIB}, {12: 0})
    assert overhead.taken == CONTEXT + 60 * MIB


@pytest.mark.parametrize("pids", [1, 1000])
def test_a_total_is_never_nothing(pids: int) -> None:
    shown = {100 + n: SIZE for n in range(pids)}
    assert min(measured(shown, {})) >= SIZE // 2, "of processes of no job"
    assert min(measured(shown, dict.fromkeys(shown, 0))) >= SIZE // 2


def test_who_is_stopped_between_an_eviction_and_its_report_has_not_lied(node: Node) -> None:
    """What NVML shows counts meanwhile, and the process is believed again when it goes on."""
    stopped = {11}
    node.leases.clients.reports.evidence[UUID].still = stopped.__contains__
    honest, tenant = honest_of(node), node.leases.tenants[HONEST]
    node.says(HONEST, honest, 200 * MIB, 0, 200 * MIB)
    node.shown[11] = 200 * MIB + CONTEXT
    node.look()
    node.shown[11] = 90 * MIB + CONTEXT
    node.look()
    assert not tenant.doubted
    assert tenant.believed[UUID].resident == 90 * MIB + CONTEXT
    stopped.clear()
    node.says(HONEST, honest, 200 * MIB, 0, 90 * MIB)
    node.look()
    assert not tenant.doubted
    node.says(HONEST, honest, 200 * MIB, 0, 200 * MIB)
    assert tenant.believed[UUID].resident == 200 * MIB
    node.look()
    assert tenant.doubted, "it runs, and NVML shows less"


@pytest.mark.parametrize("shows", [False, True])
def test_processes_have_no_more_than_their_job_may_have(node: Node, shows: bool) -> None:
    """However many say what; only what NVML shows beyond that is believed."""
    for pid in range(100, 110):
        liar = node.process(LIAR, pid, swaps=True)
        node.shown |= {pid: CONTEXT} if shows else {}
        node.says(LIAR, liar, 16 << 40, 1 << 40, 16 << 40)
    node.look(1)
    tenant = node.leases.tenants[LIAR]
    most = tenant.most_on(UUID)
    assert SIZE < most < 2 * SIZE
    assert tenant.believed[UUID] == DeviceBytes(most, 10 * CONTEXT if shows else 0, most)
    node.shown[100] = 10 * SIZE
    node.look(1)
    assert tenant.believed[UUID].fixed >= 10 * SIZE, "it is there"


def test_where_nvml_shows_nothing_a_job_says_no_more_than_it_may_have() -> None:
    node = Node()
    node.says(LIAR, node.process(LIAR, 12), 0, 16 << 40)
    tenant = node.leases.tenants[LIAR]
    assert tenant.believed[UUID] == DeviceBytes(0, tenant.most_on(UUID), 0)
