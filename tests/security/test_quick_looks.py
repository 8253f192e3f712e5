"""Jobs of which it costs much to look at their processes: the user pays, and others are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from leased.connections.limits import BURST_S, SHARE, SLICE_S
from leased.monitors.looks import Rounds
from leased.processes.identity import ProcessId
from tests.monitors.test_suspensions import Slurm

COST_S = 0.001  # of a look at one process: its first thread has ended, a debugger has 63 others
JOBS, PROCESSES = 30, 64  # of one user
HOSTILE, HONEST = 1, 100
AGAIN_S = 0.7  # between announcements of a job that is not being suspended


HONEST_PID = 10


def pids_of(job: int) -> range:
    return range(1000 * job, 1000 * job + PROCESSES)


class Crowd(Slurm):
    """A user's jobs, whose many processes stand still but for the last one of each, and another
    user's, on a clock of the test's own. What is done in one go stands in `gos`, in seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.spent = 0.0
        self.gos = [0.0]
        self.honest_looks = 0
        for job in range(HOSTILE, HOSTILE + JOBS):
            self.job(job, *pids_of(job))
            self.still |= set(pids_of(job)[:-1])
        self.job(HONEST, HONEST_PID)
        self.leases.tenants[HONEST].uid += 1
        self.suspensions.halted = self._halted
        self.sleep = asyncio.sleep
        monkeypatch.setattr(time, "thread_time", lambda: self.spent)
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    def below_stepd(self, pid: int) -> ProcessId | None:
        self._work()
        return ProcessId(10_000 + pid, 1)

    def _halted(self, _: ProcessId) -> bool:
        self._work()
        return False

    def _still(self, pid: int) -> bool:
        self.honest_looks += pid == HONEST_PID
        self._work()
        return super()._still(pid)

    def _work(self) -> None:
        self.spent += COST_S
        self.gos[-1] += COST_S

    async def _sleep(self, seconds: float) -> None:
        """Others are served meanwhile, and time passes, also that which was worked."""
        loop = self.accounts.loop
        loop.advance(seconds + self.gos[-1])  # type: ignore[attr-defined]
        self.now = int(loop.time() * 1e9)
        self.gos.append(0.0)
        if loop.time() > self.end:
            raise asyncio.CancelledError
        await self.sleep(0)

    def run(self, seconds: float, work: Callable[[], Awaitable[None] | None]) -> float:
        """What has been spent in this time."""
        before, self.end = self.spent, self.accounts.loop.time() + seconds

        async def again() -> None:
            while True:
                if rest := work():
                    await rest
                await asyncio.sleep(0.25)

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(again())
        return self.spent - before


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> Crowd:
    return Crowd(monkeypatch)


def check(crowd: Crowd, seconds: float, spent: float) -> None:
    assert spent <= 2 * BURST_S + SHARE * (seconds + 1) + crowd.honest_looks * COST_S
    assert max(crowd.gos) <= 6 * (SLICE_S + COST_S), "in one go"


def test_announcements_without_end(crowd: Crowd) -> None:
    """A job is looked at every 20 ms until it has been stopped."""

    async def watch() -> None:
        for tenant in crowd.leases.tenants.values():
            with crowd.accounts.charged(tenant.uid):
                crowd.suspensions.begin(tenant)
            await asyncio.sleep(0)
        await crowd.suspensions.watch()

    check(crowd, 10, crowd.run(10, watch))
    assert crowd.honest_looks > 100, "another user's job is looked at as often as ever"


def test_all_jobs_are_looked_at(crowd: Crowd) -> None:
    check(crowd, 10, crowd.run(10, crowd.suspensions.beat))


def test_a_holder_for_which_others_wait(crowd: Crowd) -> None:
    for process in crowd.processes[HOSTILE]:
        process.held = crowd.processes[HOSTILE][0].held
    check(crowd, 10, crowd.run(10, crowd.suspended.beat))
    assert crowd.holders() == [HOSTILE], "one of its processes runs"
    crowd.still.add(pids_of(HOSTILE)[-1])
    crowd.run(60, crowd.suspended.beat)
    assert crowd.holders() != [HOSTILE], "none does, which takes some looks"


def test_slurm_is_asked_ever_more_rarely_about_announcements_in_vain(crowd: Crowd) -> None:
    crowd.grace_ns, crowd.says = 1000 * 10**9, {HOSTILE: "RUNNING"}

    async def announce() -> None:
        crowd.suspensions.begin(crowd.leases.tenants[HOSTILE])
        if question := crowd.suspensions.ask():
            await question
        await asyncio.sleep(AGAIN_S)

    crowd.run(600, announce)
    assert 5 < len(crowd.questions) < 20


def test_a_round_goes_on_where_it_was_and_finds_the_one_that_runs(crowd: Crowd) -> None:
    pids, tenant = pids_of(HOSTILE), crowd.leases.tenants[HOSTILE]
    rounds = Rounds(crowd.suspensions.still)
    said = [rounds.look(tenant, pids) for _ in range(PROCESSES)]
    assert said[:2] == [None, None]
    assert False in said
    assert said[-1] is False, "it is looked at first from then on"
    crowd.still.add(pids[-1])
    said = [rounds.look(tenant, pids) for _ in range(PROCESSES)]
    assert said.index(True) > 10
    assert set(said[said.index(True) :]) == {True}
    crowd.still.discard(pids[20])
    assert False in [rounds.look(tenant, pids) for _ in range(PROCESSES)]
