"""Jobs that cannot act hold nobody up: how it is seen, and what becomes of their processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Collection, Mapping

import pytest
from _gpulease import lib

from leased.api.client import ask
from leased.connections.accounts import Accounts
from leased.connections.limits import Lines
from leased.core.events import Tick
from leased.gpus.devices import Gpu
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.monitors.suspended_jobs import SuspendedJobs
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes
from tests.conftest import Start
from tests.core.line import queue
from tests.emugpu.server import EmulatedGpu
from tests.fuzz.fakes import FakeLoop
from tests.slurm.leased import IMPATIENT, Leased
from tests.slurm.processes import wait_until
from tests.support.fake_client import FakeClient
from tests.support.given import given
from tests.support.looks import to_its_end
from tests.support.programs import SET_UP, line, output, state, tell

S = 1_000_000_000
UUID = "GPU-00000000-0000-0000-0000-000000000000"


class Node:
    """Jobs on one GPU, seen through a look that a test controls."""

    def __init__(self) -> None:
        gpu = Gpu(0, UUID, "card", 1 << 30, 1 << 30, 0)
        self.now = 0
        self.leases = Leases([gpu], lambda: self.now)
        self.processes: dict[int, list[FakeClient]] = {}
        self.still: set[int] = set()
        self.looked: list[int] = []
        self.percent: int | None = 0
        self.asked = 0
        self.accounts = Accounts(FakeLoop())  # type: ignore[arg-type]
        self.lines = Lines(lambda: 0.0)
        self.suspended = SuspendedJobs(
            *(self.leases, self.busy, self.accounts, self.lines), self._still
        )

    async def busy(self, uuids: Collection[str]) -> Mapping[str, int | None]:
        self.asked += 1
        return dict.fromkeys(uuids, self.percent)

    def _still(self, pid: int) -> bool:
        self.looked.append(pid)
        return pid in self.still

    def job(self, number: int, *pids: int, swaps: bool = False) -> list[FakeClient]:
        """A job whose first process asks for the GPU."""
        tenant = Tenant(number, 1000, given("on", S, swaps=swaps), {UUID: 1 << 30})
        self.leases.tenants.open(tenant)
        processes = self.processes[number] = [FakeClient(pid) for pid in pids]
        for n, process in enumerate(processes):
            self.leases.clients.attach(tenant, process, client_messages.Hello(0, n == 0, {}))
        return processes

    def beats(self, n: int) -> None:
        for _ in range(n):
            self.now += S // 4
            to_its_end(self.suspended.beat())

    def holders(self) -> list[int]:
        return list(self.leases.loop.arbiter.devices[UUID].holders)

    def release(
        self, job: int, epoch: int, process: FakeClient | None = None, *, wants: bool = False
    ) -> None:
        process = process or self.processes[job][0]
        said = client_messages.Released(epoch, 0, 0, wants)
        self.leases.clients.released(self.leases.tenants[job], process, said)


@pytest.fixture
def node() -> Node:
    return Node()


def test_no_job_is_looked_at_while_none_waits(node: Node) -> None:
    node.job(1, 10, 11)
    node.still = {10, 11}
    node.beats(8)
    assert (node.holders(), node.looked, node.asked) == ([1], [], 0)


def test_a_stopped_holder_is_passed_over_within_a_second(node: Node) -> None:
    (holder,) = node.job(1, 10)
    (waiter,) = node.job(2, 20)
    node.beats(4)
    assert node.holders() == [1]
    node.still = {10}
    node.beats(3)
    assert node.holders() == [2]
    assert lib.GL_GRANT in waiter.told
    assert holder.told[-1] == lib.GL_REVOKE, "it hears of it as soon as it can"
    usage = node.leases.tenants.usage()[1][UUID]
    assert usage.overruns == 0
    # It goes on, gives back what it has lost, and waits for its turn.
    node.still = set()
    node.release(1, 1, holder, wants=True)
    node.beats(1)
    assert queue(node.leases.loop.arbiter) == [1]
    node.release(2, 2, waiter)
    assert node.holders() == [1]
    assert holder.told[-1] == lib.GL_GRANT


@pytest.mark.parametrize("percent", [1, 100, None])
def test_work_that_may_be_under_way_is_waited_for(node: Node, percent: int | None) -> None:
    node.job(1, 10)
    node.job(2, 20)
    node.still = {10}
    node.percent = percent
    node.beats(20)
    assert node.holders() == [1]
    node.percent = 0
    node.beats(1)
    assert node.holders() == [1], "once is not enough: it may be of the moment before"
    node.beats(1)
    assert node.holders() == [2]


def test_a_job_that_can_act_is_waited_for(node: Node) -> None:
    """One of two processes that hold the lease is stopped: the other computes."""
    first, second = node.job(1, 10, 11)
    node.leases.clients.request(node.leases.tenants[1], second)
    assert first.held == second.held == 1
    node.job(2, 20)
    node.still = {10}
    node.beats(8)
    assert node.holders() == [1]
    # Its quantum ends, the other one gives back: now nobody can any more.
    node.now += S
    node.leases.run(Tick())
    assert lib.GL_REVOKE in second.told
    node.release(1, 1, second, wants=True)
    node.beats(3)
    assert node.holders() == [2]
    assert queue(node.leases.loop.arbiter) == [1], "the one that runs waits for its next turn"
    node.beats(1)
    node.release(2, 2)
    assert node.holders() == [1]
    assert (first.held, second.held) == (0, 3)


def test_a_waiter_that_is_stopped_gets_no_turn_before_it_goes_on(node: Node) -> None:
    (holder,) = node.job(1, 10)
    node.job(2, 20)
    node.job(3, 30)
    node.still = {20}
    node.beats(1)
    node.release(1, 1, holder)
    assert node.holders() == [3]
    node.still = set()
    node.beats(1)
    assert queue(node.leases.loop.arbiter) == [2]
    node.release(3, 2)
    assert node.holders() == [2]


def test_an_eviction_is_ordered_when_the_job_can_act(node: Node) -> None:
    """Told while the process still gives back its lease, it would not be done."""
    (holder,) = node.job(1, 10, swaps=True)
    has = {UUID: DeviceBytes(700 << 20, 0, 700 << 20)}
    node.leases.clients.memory(node.leases.tenants[1], holder, client_messages.Memory(has))
    node.job(2, 20)
    node.still = {10}
    node.beats(3)
    assert node.holders() == [2]
    (third,) = node.job(3, 30, swaps=True)
    assert not third.held
    node.leases.clients.memory(
        node.leases.tenants[3], third, client_messages.Memory({UUID: DeviceBytes(700 << 20)})
    )
    node.release(2, 2)
    assert node.holders() == [], "there is no room for it"
    node.still = set()
    node.beats(1)
    assert node.holders() == [3]
    assert lib.GL_EVICT not in holder.told
    node.release(1, 1, holder)
    assert holder.told[-1] == lib.GL_EVICT


def test_a_job_that_ends_meanwhile_is_forgotten(node: Node) -> None:
    node.job(1, 10)
    node.job(2, 20)
    node.still = {10}
    node.beats(1)
    node.leases.tenants.close(1)
    node.beats(3)
    assert node.holders() == [2]
    assert node.suspended.quiet == {}


# -- real processes ------------------------------------------------------------------


# It would wait for a drain for ten minutes.
LONG_DRAIN = '[limits]\ndrain = "10m"\n'
pytestmark = pytest.mark.daemon(extra=LONG_DRAIN)


TWICE = (
    SET_UP
    + """
p = ok(d.cuMemAlloc(int(sys.argv[1]) << 20))
ok(d.cuMemsetD8(p, 7, int(sys.argv[1]) << 20)); ok(d.cuCtxSynchronize())
say(os.getpid()); sys.stdin.readline()
ok(d.cuMemsetD8(p, 8, 1 << 20)); ok(d.cuCtxSynchronize())
back = bytearray(2); ok(d.cuMemcpyDtoH(back, int(p) + (1 << 20) - 1, 2))
say("went on", list(back))
"""
)


@pytest.mark.parametrize("memory", ["managed", "swap"])
def test_a_stopped_job_keeps_nobody_waiting(tenant: Start, leased: Leased, memory: str) -> None:
    options = f"tq:100ms,lock:on,memory:{memory}"
    holder = tenant(1, options, "-c", TWICE, "160")
    pid = int(line(holder))
    os.kill(pid, signal.SIGSTOP)
    beside = tenant(2, options, "-c", TWICE, "40")
    assert int(line(beside)) != pid, "there is room for it"
    tell(beside)
    assert "went on" in output(beside)
    used = next(iter(ask(leased.admin_socket, {"op": "usage", "job_id": 1})["usage"].values()))
    assert used["overruns"] == 0
    tell(holder)
    os.kill(pid, signal.SIGCONT)
    assert line(holder) == "went on [8, 7]"
    output(holder)


# It takes SIGTSTP back from the interposer, so nobody is told before it stops. In a group of its
# own the signal stops it.
TAKES_BACK = "import os, signal\nos.setpgid(0, 0)\n" + TWICE.replace(
    "say(os.getpid())", "signal.signal(signal.SIGTSTP, signal.SIG_DFL); say(os.getpid())"
)


@pytest.mark.daemon(extra=LONG_DRAIN, preload=IMPATIENT)
@pytest.mark.parametrize(
    ("program", "stop"), [(TWICE, signal.SIGSTOP), (TAKES_BACK, signal.SIGTSTP)]
)
def test_memory_of_a_stopped_job_is_no_room_and_its_user_hears_of_it(
    tenant: Start, leased: Leased, program: str, stop: signal.Signals
) -> None:
    options = "tq:100ms,memory:swap"
    holder = tenant(1, options, "-c", program, "160")
    pid = int(line(holder))
    os.kill(pid, stop)
    large = tenant(2, options, "-c", SET_UP + "say('asks')\n" + TWICE, "160")
    assert line(large) == "asks"
    assert large.stderr is not None
    said = large.stderr.readline()
    assert "160 MiB of job 1, which is stopped or suspended, stay on GPU 0 and leave" in said
    told = {one["job_id"]: one for one in ask(leased.admin_socket, {"op": "status"})["tenants"]}
    assert (told[1]["stopped"], told[2]["stopped"]) == (True, False)
    (kept_out,) = told[2]["kept_out"].values()
    assert kept_out["by"] == {"1": 160 << 20}
    small = tenant(3, options, "-c", TWICE, "40")
    assert int(line(small)), "who fits beside it is not kept waiting"
    os.kill(pid, signal.SIGCONT)
    assert int(line(large)), "it makes room when it goes on"
    for process in (large, small, holder):
        tell(process)
        assert line(process) == "went on [8, 7]"
        output(process)


def test_a_stopped_process_with_work_under_way_is_waited_for(
    tenant: Start, leased: Leased, emulated_gpu: EmulatedGpu
) -> None:
    """Its kernel goes on without it, and nobody runs beside it."""
    code = SET_UP + "ok(spin(20_000_000_000)); say(os.getpid()); sys.stdin.readline()"
    holder = tenant(1, "tq:100ms,lock:on", "-c", code)
    pid = int(line(holder))
    os.kill(pid, signal.SIGSTOP)
    asks = SET_UP + "say(os.getpid()); ok(spin(1000)); ok(d.cuCtxSynchronize())"
    waiter = tenant(2, "tq:100ms,lock:on", "-c", asks)
    other = int(line(waiter))
    wait_until("it to wait", lambda: state(leased, 2) == "waits")
    emulated_gpu.end_spins()
    output(waiter)
    slices = emulated_gpu.trace()
    ends = max(end for _, who, _, end in slices if who == pid)
    begins = min(start for _, who, start, _ in slices if who == other)
    assert ends <= begins
    os.kill(pid, signal.SIGCONT)
    tell(holder)
    output(holder)
