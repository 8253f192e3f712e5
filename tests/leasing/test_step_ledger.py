"""What each step of a job has had: by its own processes, and as its part of the job's figures."""

from __future__ import annotations

import random
from dataclasses import replace

from leased.leasing.step_division import DIVIDED, shares
from leased.leasing.step_ledger import ONE_STEP_NS, StepLedger
from leased.usage.step_usage import OTHERS, STEPS_MOST, StepUsage
from leased.usage.usage import KIB_MS, Usage
from leased.wire.device_bytes import DeviceBytes
from tests.support.fake_client import FakeClient

JOB, GPU = 7, "GPU-0"
S = 1_000_000_000
MIB = 1 << 20


class Node:
    """A ledger with a clock of its own. job: what the job has had."""

    def __init__(self, *, swaps: bool = False, before: dict[str, StepUsage] | None = None):
        self.now = 5 * S
        self.names: dict[int, str] = {}
        self.ledger = StepLedger(lambda: self.now, lambda: 1000.0 + self.now / S)
        self.ledger.name_of = self.names.__getitem__
        self.ledger.open(JOB, swaps, before or {})
        self.job = Usage()

    def process(self, step: str, *, has: int = 0) -> FakeClient:
        """A process of the step connects, with so many bytes."""
        client = FakeClient(len(self.names) + 1)
        self.names[client.pid] = step
        client.memory = {GPU: DeviceBytes(has, 0, 0)}
        self.ledger.came(JOB, client)
        return client

    def change(self, client: FakeClient, *, held: int = 0, wants: bool = False) -> None:
        if wants and not held:
            client.wants = True
            self.ledger.see(JOB, [client])
            return
        if held:
            self.ledger.granted(JOB)
        client.held, client.wants = held, wants
        self.ledger.see(JOB, [client])

    def ends(self, client: FakeClient) -> None:
        client.held = 0
        self.ledger.gone(JOB, client)

    def passes(self, seconds: float, **had: int) -> None:
        """So much time, in which the job has had this of the device."""
        self.now += int(seconds * S)
        self.job.time_ns += int(seconds * S)
        for name, amount in had.items():
            setattr(self.job, name, getattr(self.job, name) + amount)

    def steps(self) -> dict[str, Usage]:
        found = self.ledger.divided(JOB, {GPU: self.job})
        return {name: step.usage[GPU] for name, step in found.items()}


def test_steps_one_after_the_other_have_what_the_job_had_meanwhile() -> None:
    node = Node()
    first = node.process("0", has=300 * MIB)
    node.change(first, wants=True)
    node.passes(1, wait_ns=S)
    node.change(first, held=1)
    wanted = 300 * MIB * 3 * S // KIB_MS
    node.passes(2, lease_ns=2 * S, handoffs=1, wanted_kib_ms=wanted)
    node.ends(first)
    node.steps()
    node.passes(10)
    second = node.process("1", has=40 * MIB)
    node.change(second, wants=True)
    node.change(second, held=2)
    node.passes(5, lease_ns=5 * S, measured_ns=4 * S, busy_ns=S, handoffs=2)
    node.ends(second)
    found = node.ledger.close(JOB, {GPU: node.job})
    one, two = found["0"], found["1"]
    assert one.usage[GPU] == Usage(
        time_ns=3 * S,
        wait_ns=S,
        lease_ns=2 * S,
        handoffs=1,
        peak_bytes=300 * MIB,
        wanted_kib_ms=wanted,
    )
    assert two.usage[GPU] == Usage(
        time_ns=5 * S,
        lease_ns=5 * S,
        measured_ns=4 * S,
        busy_ns=S,
        handoffs=2,
        peak_bytes=40 * MIB,
    )
    assert (one.since, one.until, two.since, two.until) == (1005, 1008, 1018, 1023)


def test_steps_that_hold_at_once_have_even_parts_and_each_its_own_wait() -> None:
    node = Node()
    clients = [node.process(step) for step in ("0", "1", "2")]
    for client in clients[:2]:
        node.change(client, held=1)
    node.change(clients[2], wants=True)
    node.passes(4, lease_ns=4 * S)
    found = node.steps()
    assert [found[step].lease_ns for step in "012"] == [2 * S, 2 * S, 0]
    assert [found[step].wait_ns for step in "012"] == [0, 0, 4 * S]
    assert [found[step].time_ns for step in "012"] == [4 * S] * 3


def test_the_lease_is_divided_by_the_work_that_nvml_saw() -> None:
    node = Node()
    busy, lazy = node.process("0"), node.process("1")
    node.change(busy, held=1)
    node.change(lazy, held=1)
    node.passes(4, lease_ns=4 * S, measured_ns=4 * S, busy_ns=2 * S)
    node.ledger.worked(JOB, GPU, {busy.pid: 60, lazy.pid: 20, 999: 50})
    found = node.steps()
    assert (found["0"].lease_ns, found["1"].lease_ns) == (3 * S, S)
    assert (found["0"].busy_ns, found["1"].busy_ns) == (3 * S // 2, S // 2)


def test_late_figures_count_for_the_steps_that_held_last() -> None:
    node = Node()
    node.process("1")
    client = node.process("0")
    node.change(client, held=1)
    node.passes(1, lease_ns=S)
    node.steps()
    node.ends(client)
    node.passes(1, measured_ns=S, busy_ns=S // 2)
    assert node.steps()["0"].busy_ns == S // 2


def test_what_is_measured_late_takes_no_lease_from_the_step_that_had_it() -> None:
    node = Node()
    first = node.process("0")
    node.change(first, held=1)
    node.passes(0.25, lease_ns=S // 4)
    node.ends(first)
    second = node.process("1")
    node.steps()
    node.change(second, held=2)
    node.passes(0.125, lease_ns=S // 8, measured_ns=S // 4 + S // 8, busy_ns=S // 8)
    found = node.steps()
    assert [found[step].lease_ns for step in "01"] == [S // 4, S // 8]
    assert [found[step].measured_ns for step in "01"] == [S // 4, S // 8]


def test_a_job_without_a_process_has_no_steps_and_what_was_before_the_first_is_not_lost() -> None:
    node = Node()
    node.passes(3, idle_resident_ns=S)
    assert node.steps() == {}
    node.process("batch")
    assert node.steps()["batch"].idle_resident_ns == 0, "nobody has memory yet"
    closed = node.ledger.close(JOB, {GPU: node.job})
    assert closed["batch"].usage[GPU].idle_resident_ns == S
    assert node.ledger.divided(JOB, {GPU: node.job}) == {}, "it is over"


def test_handoffs_count_for_who_has_waited_longest_and_overruns_for_who_holds() -> None:
    node = Node()
    early, late = node.process("0"), node.process("1")
    for _ in range(3):
        node.change(early, wants=True)
        node.passes(0.1, wait_ns=S // 10)
        node.change(late, wants=True)
        node.ledger.granted(JOB)
        for client in (early, late):
            client.held, client.wants = 1, False
        node.ledger.see(JOB, [early, late])
        node.passes(1, lease_ns=S, handoffs=1)
        early.held = 0
        node.ledger.see(JOB, [early])
        node.ledger.overran(JOB)
        node.passes(0.1, lease_ns=S // 10, overruns=1)
        late.held = 0
        node.ledger.see(JOB, [late])
    found = node.steps()
    assert [(found[s].handoffs, found[s].overruns) for s in "01"] == [(3, 0), (0, 3)]


def test_resident_memory_is_the_processes_own_where_it_is_swapped() -> None:
    for swaps, expected in ((True, [10, 70]), (False, [20, 60])):
        node = Node(swaps=swaps)
        small, large = node.process("0", has=10 * MIB), node.process("1", has=30 * MIB)
        small.memory = {GPU: DeviceBytes(10 * MIB, 0, 2 * MIB)}
        large.memory = {GPU: DeviceBytes(30 * MIB, 0, 14 * MIB)}
        node.ledger.see(JOB, [small, large])
        node.passes(1, resident_kib_ms=80_000_000)
        found = node.steps()
        assert [found[s].resident_kib_ms // 1_000_000 for s in "01"] == expected
        if swaps:
            assert [found[s].peak_resident_bytes for s in "01"] == [2 * MIB, 14 * MIB]


def test_steps_beyond_the_limit_are_one() -> None:
    node = Node()
    for number in range(300):
        client = node.process(str(number))
        node.change(client, held=1)
        node.passes(0.01, lease_ns=S // 100)
        node.ends(client)
        node.steps()
    found = node.steps()
    assert len(found) == STEPS_MOST + 1
    assert found[OTHERS].lease_ns == (300 - STEPS_MOST) * S // 100
    assert sum(used.lease_ns for used in found.values()) == node.job.lease_ns


def test_a_daemon_after_a_restart_goes_on_from_what_was_stored() -> None:
    node = Node()
    client = node.process("0", has=9 * MIB)
    node.change(client, wants=True)
    node.change(client, held=1)
    node.passes(2, lease_ns=2 * S, handoffs=1)
    stored = node.ledger.divided(JOB, {GPU: node.job})
    job = replace(node.job)
    again = Node(before=stored)
    again.job = job
    client = again.process("0")
    again.change(client, held=1)
    again.passes(1, lease_ns=S)
    assert again.steps()["0"] == replace(
        node.job, time_ns=3 * S, lease_ns=3 * S, peak_bytes=9 * MIB
    )
    assert stored["0"].usage[GPU].lease_ns == 2 * S, "what the store has is its own"


def test_the_divided_figures_of_the_steps_add_up_to_the_jobs_whatever_happens() -> None:
    for seed in range(12):
        draw = random.Random(seed)
        node = Node(swaps=bool(seed % 2))
        clients: list[FakeClient] = []
        for _ in range(120):
            what = draw.random()
            if what < 0.15 or not clients:
                clients.append(node.process(str(draw.randrange(5)), has=draw.randrange(MIB)))
            elif what < 0.25:
                node.ends(clients.pop(draw.randrange(len(clients))))
            else:
                chosen = draw.choice(clients)
                node.change(chosen, held=draw.choice([0, 1]), wants=draw.random() < 0.4)
            had = {name: draw.randrange(1000) for name in DIVIDED}
            had["lease_ns"] += had["measured_ns"] + had["busy_ns"]
            had["measured_ns"] += had["busy_ns"]
            had["moved_bytes"] += had["moved_out_bytes"]
            node.passes(draw.random(), **had)
            if draw.random() < 0.2:  # NVML says that the work was others'
                node.job.lease_ns = max(node.job.measured_ns, node.job.lease_ns - 500)
            if draw.random() < 0.5:
                node.ledger.worked(JOB, GPU, {c.pid: draw.randrange(100) for c in clients})
                node.steps()
        found = node.ledger.close(JOB, {GPU: node.job})
        used = [step.usage[GPU] for step in found.values()]
        for name in DIVIDED:
            assert sum(getattr(u, name) for u in used) == getattr(node.job, name), (seed, name)
        for step in used:
            assert 0 <= step.busy_ns <= step.measured_ns <= step.lease_ns, seed
            assert 0 <= step.moved_out_bytes <= step.moved_bytes, seed


def test_shares_are_whole_and_their_sum_is_the_amount() -> None:
    assert shares(10, [1, 1, 1]) == [4, 3, 3]
    assert shares(10, [0, 5]) == [0, 10]
    assert shares(10, [0, 0]) == [0, 0]


def test_a_job_with_one_step_is_divided_seldom_and_loses_nothing() -> None:
    node = Node()
    assert node.ledger.is_due(JOB)
    only = node.process("0")
    node.change(only, held=1)
    node.steps()
    node.passes(8, lease_ns=8 * S)
    assert not node.ledger.is_due(JOB)
    node.process("1")
    assert node.ledger.is_due(JOB), "from now on there is something to divide"
    found = node.steps()
    assert (found["0"].lease_ns, found["1"].lease_ns) == (8 * S, 0)
    alone = Node()
    alone.change(alone.process("0"), held=1)
    alone.steps()
    alone.now += ONE_STEP_NS
    assert alone.ledger.is_due(JOB)
