"""Jobs on several nodes: the leases of each node as they are, around one simulated time.

Messages between nodes are late or lost, daemons are killed and come back, processes release in a
while and ask again. Who really runs is noted by the processes alone.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from _gpulease import ffi, lib

from leased.across.across import MOST_ABSENT
from leased.across.messages import Message, Order, Phase
from leased.core.events import Tick
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.several_nodes import SeveralNodes
from leased.leasing.tenant import Tenant
from leased.store.promises import Promises
from leased.wire import client_messages, header
from tests.support.fake_client import FakeClient
from tests.support.given import given

MS, S = 1_000_000, 1_000_000_000
QUANTUM = S // 2
DRAIN = 2 * S
ROOM = 1 << 30
UUID = "GPU-00000000-0000-0000-0000-{:012}"


class Process(FakeClient):
    """Always wants its GPU. It works until it is told to stop, and then for a moment."""

    def __init__(self, world: World, node: str, tenant: Tenant, pid: int):
        super().__init__(pid)
        self.world, self.node, self.tenant = world, node, tenant
        self.works = False
        self.turns = 0
        self.epoch = 0  # of the lease that it has

    def send(self, message: bytes) -> None:
        kind = header.check_header(message)
        if kind == lib.GL_GRANT:
            self.epoch = int(ffi.from_buffer("struct gl_grant *", message).epoch)
            self.works = True
            self.turns += 1
            self.world.look(self)
        elif kind == lib.GL_REVOKE:
            self.world.after(self.world.random.choice((0, 1, 20)) * MS, self.release)

    def release(self) -> None:
        epoch, self.epoch, self.works = self.epoch, 0, False
        leases = self.world.leases.get(self.node)
        if leases is not None and epoch:
            said = client_messages.Released(epoch, 0, 0, wants=True)
            leases.clients.released(self.tenant, self, said)

    def come_back(self) -> None:
        """A new daemon is there."""
        leases = self.world.leases[self.node]
        self.tenant = leases.tenants[self.tenant.job_id]
        self.wants, self.held = not self.epoch, 0
        hello = client_messages.Hello(self.epoch, not self.epoch, {})
        leases.clients.attach(self.tenant, self, hello)


class Network:
    """What a node's daemon sends."""

    def __init__(self, world: World, node: str, daemon: int):
        self.world, self.node, self.daemon = world, node, daemon

    def send(self, node: str, message: Message) -> None:
        self.world.carry(self.node, node, message)

    def forget(self, job: str) -> None: ...

    def faults(self, nodes: Iterable[str]) -> dict[str, str]:
        return {node: "it is down" for node in nodes if node not in self.world.leases}


class World:
    """jobs: the nodes of each, in order. lost: the part of the messages that is. absent: jobs of
    which no step has begun on these nodes."""

    def __init__(
        self,
        place: Path,
        seed: int,
        jobs: dict[int, str],
        lost: float = 0.0,
        absent: Iterable[tuple[int, str]] = (),
    ):
        self.random = random.Random(seed)
        self.place, self.jobs, self.lost = place, jobs, lost
        self.absent = set(absent)
        self.now = 0
        self.later: list[tuple[int, int, Callable[[], None]]] = []
        self.numbers = itertools.count(1)
        self.leases: dict[str, Leases] = {}
        self.several: dict[str, SeveralNodes] = {}
        self.halves: list[tuple[int, int, int]] = []
        self.daemons: dict[str, int] = {}
        self.processes: list[Process] = []
        for node in sorted(set("".join(jobs.values()))):
            self.start(node)

    # -- time ----------------------------------------------------------------------------

    def after(self, ns: int, what: Callable[[], None]) -> None:
        heapq.heappush(self.later, (self.now + ns, next(self.numbers), what))

    def run(self, ns: int) -> None:
        end = self.now + ns
        while True:
            dues = [self.later[0][0]] if self.later else []
            for node, leases in self.leases.items():
                both = leases.loop.arbiter.next_deadline(), self.several[node].next_deadline()
                dues += [due for due in both if due is not None]
            if not dues or min(dues) > end:
                break
            self.now = max(self.now, *[min(dues)])
            if self.later and self.later[0][0] <= self.now:
                heapq.heappop(self.later)[2]()
            for node, leases in list(self.leases.items()):
                self.pass_time(node, leases)
        self.now = end

    def pass_time(self, node: str, leases: Leases) -> None:
        due, of_job = leases.loop.arbiter.next_deadline(), self.several[node].next_deadline()
        if due is not None and due <= self.now:
            leases.run(Tick())
        if of_job is not None and of_job <= self.now:
            self.several[node].pass_time()

    # -- daemons --------------------------------------------------------------------------

    def start(self, node: str) -> None:
        """A daemon, the first one or a later one, with the jobs that are there."""
        self.daemons[node] = self.daemons.get(node, 0) + 1
        first_epoch = 1000 * self.daemons[node]
        gpu = Gpu(0, UUID.format(ord(node)), "card", ROOM, ROOM, 0)
        again = self.daemons[node] > 1
        leases = Leases(
            [gpu],
            lambda: self.now,
            first_epoch=first_epoch,
            grace_ns=S if again else 0,
            drain_ns=DRAIN,
        )
        self.leases[node] = leases
        here = [job for job in self.jobs if node in self.nodes(job)]
        for job in here if again else ():
            leases.tenants.open(self.tenant(job, node))
        network = Network(self, node, self.daemons[node])
        promises = Promises(self.place / node)
        self.several[node] = SeveralNodes(
            leases, node, 2 * DRAIN, first_epoch, promises=promises, peers=network
        )
        for job in here if not again else ():
            self.open(job, node)
        for process in self.processes if again else ():
            if process.node == node:
                process.come_back()

    def kill(self, node: str) -> None:
        for job in list(self.several[node].promises.files):
            self.several[node].promises.close_file(job)
        del self.leases[node], self.several[node]

    def nodes(self, job: int) -> list[str]:
        """Where steps of it have begun."""
        return [node for node in self.jobs[job] if (job, node) not in self.absent]

    def parts(self, job: int) -> list[str]:
        """The nodes on which it runs at the same time or not at all: its steps that have been taken
        up, and where that is not known."""
        return [node for node in self.nodes(job) if self.is_part(job, node)]

    def is_part(self, job: int, node: str) -> bool:
        daemon = self.several.get(node)
        member = daemon.across.members.get(str(job)) if daemon else None
        return daemon is None or (member is not None and member.gpus != 0)

    def begin(self, job: int, node: str) -> None:
        """A step of it begins there too."""
        self.absent.remove((job, node))
        self.open(job, node)

    def tenant(self, job: int, node: str) -> Tenant:
        nodes = tuple(self.jobs[job])
        several = nodes if len(nodes) > 1 else ()
        uuid = UUID.format(ord(node))
        return Tenant(job, 1000, given("auto", QUANTUM), {uuid: ROOM}, nodes=several)

    def open(self, job: int, node: str) -> None:
        leases, tenant = self.leases[node], self.tenant(job, node)
        leases.tenants.open(tenant)
        process = Process(self, node, tenant, next(self.numbers))
        self.processes.append(process)
        leases.clients.attach(tenant, process, client_messages.Hello(0, True, {}))

    def carry(self, here: str, there: str, message: Message) -> None:
        if self.random.random() >= self.lost:
            delay = self.random.choice((100_000, 200_000, 5 * MS))
            self.after(delay, lambda: self.deliver(here, there, message))

    def deliver(self, here: str, there: str, message: Message) -> None:
        if there in self.several:
            self.several[there].received(here, message)

    # -- what is seen --------------------------------------------------------------------------

    def look(self, fresh: Process) -> None:
        """Nobody else works on a node of a job that does, nor it on one of theirs."""
        for other in self.processes:
            ours, theirs = fresh.tenant.job_id, other.tenant.job_id
            if other.works and ours != theirs:
                meet = other.node in self.parts(ours) or fresh.node in self.parts(theirs)
                apart = other.node not in self.leases  # it had no daemon that could stop it
                if meet and not apart:
                    self.halves.append((self.now, ours, theirs))

    def turns(self) -> dict[tuple[int, str], int]:
        return {(p.tenant.job_id, p.node): p.turns for p in self.processes}


Start = Callable[..., World]


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Start]:
    """Makes a world, whose daemons are ended after the test."""
    made: list[World] = []

    def make(seed: int, jobs: dict[int, str], lost: float = 0.0, **more: Any) -> World:
        made.append(World(tmp_path, seed, jobs, lost, **more))
        return made[-1]

    yield make
    for world in made:
        for node in list(world.leases):
            world.kill(node)


def test_two_jobs_and_one_of_a_single_node_have_the_same_time(worlds: Start) -> None:
    world = worlds(1, {1: "ab", 2: "ab", 3: "b"})
    world.run(60 * S)
    assert world.halves == []
    turns = world.turns()
    assert min(turns.values()) >= 60 * S // QUANTUM // 3 - 10, turns
    assert abs(turns[1, "a"] - turns[1, "b"]) <= 1


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "jobs",
    [
        {1: "ab", 2: "ba", 3: "a", 4: "b"},
        {1: "abc", 2: "ca", 3: "bc", 4: "b"},
        {1: "ab", 2: "bc", 3: "ca"},
    ],
)
def test_messages_are_lost_and_daemons_killed(
    worlds: Start, seed: int, jobs: dict[int, str]
) -> None:
    """No half of a job runs, and where nothing goes wrong any more everybody goes on."""
    world = worlds(seed, jobs, lost=0.05)
    for _ in range(6):
        world.run(world.random.randrange(20 * S))
        node = world.random.choice(sorted(world.leases))
        world.kill(node)
        world.run(world.random.choice((0, 10 * MS, 3 * S, 12 * S)))
        world.start(node)
    world.run(30 * S)
    world.lost = 0.0
    world.run(40 * S)
    before = world.turns()
    world.run(60 * S)
    after = world.turns()
    assert world.halves == []
    idle = {who: after[who] - before[who] for who in before if after[who] - before[who] < 5}
    assert not idle


def test_a_job_waits_for_a_node_that_is_down_and_says_so(worlds: Start) -> None:
    world = worlds(1, {1: "ab", 2: "a"})
    world.kill("b")
    world.run(20 * S)
    tenant = world.leases["a"].tenants[1]
    found = world.several["a"].elsewhere(tenant)
    assert found.why == "gpu-leased has not answered on b (it is down)"
    assert world.turns()[2, "a"] > 0, "others go on"
    world.start("b")
    world.run(60 * S)
    assert world.several["a"].elsewhere(tenant).nodes.keys() == {"a", "b"}
    assert world.turns()[1, "b"] > 1
    assert world.halves == []


@pytest.mark.parametrize("lost", [0.0, 0.05])
def test_a_job_needs_no_gpus_where_no_step_of_it_has_begun(worlds: Start, lost: float) -> None:
    """It runs where it is, others where it is not; and on all its nodes once it is there."""
    world = worlds(1, {1: "abc", 2: "ab", 3: "b"}, lost, absent=[(1, "b"), (1, "c")])
    world.run(40 * S)
    assert world.turns()[1, "a"] > 5
    assert world.halves == []
    for node in "bc":
        world.begin(1, node)
        world.run(40 * S)
    assert world.halves == []
    world.lost = 0.0
    before = world.turns()
    world.run(60 * S)
    more = {who: turns - before[who] for who, turns in world.turns().items()}
    assert min(more.values()) > 10, more
    assert abs(more[1, "a"] - more[1, "c"]) <= 1


def test_jobs_that_are_on_other_nodes_alone_are_forgotten(worlds: Start) -> None:
    world = worlds(1, {1: "ab", 2: "b"}, absent=[(1, "b")])
    world.run(10 * S)
    several = world.several["b"]
    assert several.across.members["1"].is_absent()
    world.leases["a"].tenants.close(1)
    world.processes = [process for process in world.processes if process.tenant.job_id == 2]
    world.run(1000 * S)
    for job in map(str, range(1000, 1300)):
        several.received("a", Order(job, 1, 1, Phase.REST, stamp=1))
    assert "1" not in several.across.members
    assert "1299" in several.across.members
    assert len(several.across.members) <= MOST_ABSENT + 1
    several.received("a", Order("1299", 1, 2, Phase.REST))
    assert "1299" not in several.across.members
    before = world.turns()[2, "b"]
    world.leases["b"].tenants[2].clients[0].release()  # type: ignore[attr-defined]
    world.run(S)
    assert world.turns()[2, "b"] > before


def test_what_ends_leaves_nothing(worlds: Start) -> None:
    world = worlds(1, {1: "ab", 2: "ab"})
    world.run(3 * S)
    for node in "ab":
        world.leases[node].tenants.close(1)
        world.run(S)
    world.processes = [process for process in world.processes if process.tenant.job_id == 2]
    before = world.turns()
    world.run(20 * S)
    assert all(several.across.members.keys() == {"2"} for several in world.several.values())
    assert [path.name for path in sorted((world.place / "a").iterdir())] == ["2"]
    assert world.turns() == before or min(world.turns().values()) > min(before.values())
