"""Who is being suspended, for how long that is believed, and who leaves the GPU idle."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest
from _gpulease import lib

from leased.api.answers import CHECKPOINT, MOVE
from leased.core import state
from leased.core.events import Parked, Unparked
from leased.monitors.idle_jobs import IdleJobs
from leased.monitors.suspensions import ASK_FIRST_NS, LOOK_AT_ALL, MARGIN_NS, Suspensions
from leased.processes.identity import ProcessId
from leased.slurm.commands import JobState
from leased.wire import client_messages
from leased.wire.device_bytes import DeviceBytes
from tests.monitors.test_suspended_jobs import UUID, Node, S
from tests.support.fake_client import FakeClient
from tests.support.looks import to_its_end
from tests.support.together import pairwise

GRACE_NS = 2 * S
SHELL = ProcessId(5, 1)


class Slurm(Node):
    """Jobs whose processes stand below a shell, which stands below a slurmstepd."""

    def __init__(self) -> None:
        super().__init__()
        self.stopped: set[ProcessId] = set()
        self.says: dict[int, str] | OSError = {}  # slurmctld, of jobs
        self.questions: list[list[int]] = []
        self.grace_ns = GRACE_NS
        self.suspensions = Suspensions(
            *(self.leases, self, self, self.accounts, self.lines),
            *(lambda: self.grace_ns, self._still),
            halted=lambda top: top in self.stopped,
        )

    def below_stepd(self, pid: int) -> ProcessId | None:
        return SHELL if pid >= 10 else ProcessId(pid, 1)

    async def jobs(self, job_ids: Collection[int]) -> dict[int, JobState]:
        self.questions.append(sorted(job_ids))
        if isinstance(self.says, OSError):
            raise self.says
        return {job: JobState(self.says[job]) for job in job_ids if job in self.says}

    def look(self) -> None:
        self.now += S // 4
        to_its_end(self.suspensions.beat())

    def ask(self) -> None:
        self.now += ASK_FIRST_NS
        to_its_end(self.suspensions.ask())

    def ask_until_answered(self) -> None:
        asked = len(self.questions)
        while len(self.questions) == asked:
            self.ask()

    def view(self, job: int) -> state.Tenant:
        return self.leases.view.tenant(job)

    def is_suspended(self, job: int) -> bool:
        parked = self.view(job).parked
        return parked is not None and parked.suspended


@pytest.fixture
def slurm() -> Slurm:
    return Slurm()


def test_a_job_below_a_stopped_shell_gives_all_up_until_it_goes_on(slurm: Slurm) -> None:
    (process,) = slurm.job(1, 10)
    slurm.look()
    assert not slurm.is_suspended(1)
    slurm.stopped.add(SHELL)
    slurm.look()
    assert process.told[-1] == lib.GL_REVOKE
    slurm.release(1, 1, process, wants=True)
    assert process.told[-1] == lib.GL_LEAVE, "and its request is not served"
    slurm.still = {10}
    slurm.look()
    slurm.now += 1000 * S
    slurm.look()
    assert slurm.is_suspended(1)
    slurm.still, slurm.stopped = set(), set()
    slurm.look()
    assert not slurm.is_suspended(1)
    assert slurm.holders() == [1]


def test_a_job_that_has_and_wants_nothing_is_looked_at_seldom(slurm: Slurm) -> None:
    (idle,) = slurm.job(1, 10)
    slurm.release(1, 1, idle)
    slurm.stopped.add(SHELL)
    looks = 1
    while not slurm.is_suspended(1):
        slurm.look()
        looks += 1
    assert looks > LOOK_AT_ALL / 2
    slurm.stopped.clear()
    slurm.still = set()
    slurm.look()
    slurm.now += GRACE_NS + MARGIN_NS
    slurm.look()
    assert not slurm.is_suspended(1), "who is known to be suspended is looked at each time"


def test_nothing_is_read_of_a_process_right_below_a_slurmstepd(slurm: Slurm) -> None:
    """It gets the signal itself."""
    slurm.job(1, 9)
    slurm.look()
    asked = slurm.suspensions.tops[1].of
    assert asked == {9: None}
    for _ in range(LOOK_AT_ALL):
        slurm.look()
    assert slurm.suspensions.tops[1].of is asked


def test_a_stop_that_is_no_suspension_is_believed_once(slurm: Slurm) -> None:
    slurm.job(1, 10)
    slurm.stopped.add(SHELL)
    slurm.look()
    assert slurm.is_suspended(1)
    slurm.now += GRACE_NS + MARGIN_NS
    slurm.look()
    assert not slurm.is_suspended(1)
    slurm.look()
    assert not slurm.is_suspended(1)


@pytest.mark.parametrize("by", [MOVE, CHECKPOINT])
def test_a_job_that_is_moved_or_saved_stays_parked_for_that(slurm: Slurm, by: str) -> None:
    """Any process can announce a suspension, which then comes to nothing."""
    slurm.job(1, 10)
    slurm.leases.run(Parked(1, by, suspended=True))
    slurm.stopped.add(SHELL)
    slurm.look()
    assert 1 in slurm.suspensions.of
    slurm.now += GRACE_NS + MARGIN_NS
    slurm.look()
    assert 1 not in slurm.suspensions.of
    parked = slurm.view(1).parked
    assert parked is not None
    assert parked.by == by


def test_a_job_that_is_suspended_while_it_moves_is_parked_when_it_has(slurm: Slurm) -> None:
    slurm.job(1, 10)
    slurm.leases.run(Parked(1, MOVE, suspended=True))
    slurm.stopped.add(SHELL)
    slurm.look()
    slurm.still = {10}
    slurm.look()
    slurm.leases.run(Unparked(1))
    assert not slurm.is_suspended(1)
    slurm.look()
    assert slurm.is_suspended(1)
    slurm.still, slurm.stopped = set(), set()
    slurm.look()
    assert not slurm.is_suspended(1)


def test_the_next_stop_of_a_job_that_was_not_suspended_is_believed(slurm: Slurm) -> None:
    slurm.job(1, 10)
    slurm.stopped.add(SHELL)
    slurm.look()
    slurm.now += GRACE_NS + MARGIN_NS
    slurm.look()
    slurm.stopped.clear()
    slurm.look()
    slurm.stopped.add(SHELL)
    slurm.look()
    assert slurm.is_suspended(1)


def test_an_announcement_behind_one_whose_stop_was_too_short_counts_anew(slurm: Slurm) -> None:
    """The earlier one is believed for longer than it takes Slurm to announce the next."""
    slurm.job(1, 10)
    slurm.stopped.add(SHELL)
    slurm.look()
    slurm.now += GRACE_NS + MARGIN_NS - S
    slurm.stopped.clear()
    slurm.look()
    slurm.stopped.add(SHELL)
    slurm.look()
    slurm.now += GRACE_NS - S
    slurm.look()
    assert slurm.is_suspended(1), "within the grace of the second"
    slurm.now += MARGIN_NS + S
    slurm.look()
    assert not slurm.is_suspended(1)


def test_a_process_that_announces_it_twice_is_believed_from_the_second_time_on(
    slurm: Slurm,
) -> None:
    slurm.job(1, 7)
    slurm.suspensions.begin(slurm.leases.tenants[1])
    slurm.now += GRACE_NS + MARGIN_NS - S
    slurm.suspensions.begin(slurm.leases.tenants[1])
    slurm.now += GRACE_NS
    slurm.look()
    assert slurm.is_suspended(1)


def test_slurm_is_asked_soon_where_it_gives_no_grace(slurm: Slurm) -> None:
    """A process that is stopped at once may announce it when it goes on."""
    slurm.grace_ns = 0
    slurm.says = {1: "RUNNING"}
    slurm.job(1, 7)
    slurm.suspensions.begin(slurm.leases.tenants[1])
    slurm.now += S
    to_its_end(slurm.suspensions.ask())
    assert not slurm.is_suspended(1)


def test_a_short_stop_is_seen_between_two_looks_at_all_jobs(slurm: Slurm) -> None:
    looks = 0
    seen = asyncio.Event()

    def stopped_at_the_third_look(_pid: int) -> bool:
        nonlocal looks
        looks += 1
        if looks == 3:
            seen.set()
        return looks == 3

    async def watch() -> None:
        watching = asyncio.create_task(slurm.suspensions.watch())
        await seen.wait()
        watching.cancel()

    slurm.job(1, 10)
    slurm.stopped.add(SHELL)
    slurm.look()
    slurm.suspensions.rounds.is_still = stopped_at_the_third_look
    asyncio.run(watch())
    slurm.stopped.clear()
    slurm.look()
    assert not slurm.is_suspended(1)


def test_slurm_is_asked_about_a_job_whose_stop_nobody_has_seen(slurm: Slurm) -> None:
    slurm.grace_ns = 1000 * S
    slurm.job(1, 10)
    slurm.job(2, 7)
    slurm.stopped.add(SHELL)
    slurm.look()
    answers: list[dict[int, str] | OSError] = [{}, {1: "SUSPENDED", 2: "RUNNING"}, OSError("no")]
    for said in answers:
        slurm.says = said
        slurm.ask_until_answered()
        assert slurm.is_suspended(1)
    slurm.says = {1: "RUNNING"}
    slurm.ask_until_answered()
    assert not slurm.is_suspended(1)
    assert slurm.now == S // 4 + (1 + 2 + 4 + 8) * ASK_FIRST_NS, "twice as long each time"
    assert slurm.questions == [[1]] * 4


def pauses(slurm: Slurm, most: int) -> list[int]:
    """In seconds, until Slurm is asked about a job that is announced twice a second."""
    at = [slurm.now]
    while len(at) <= most:
        asked = len(slurm.questions)
        slurm.suspensions.begin(slurm.leases.tenants[1])
        slurm.now += S // 2
        to_its_end(slurm.suspensions.ask())
        at += [slurm.now] * (len(slurm.questions) - asked)
    return [(after - before) // S for before, after in pairwise(at)]


@pytest.mark.parametrize("says", [{}, {1: "RUNNING"}])
def test_pauses_grow_whatever_is_announced_until_it_is_true(
    slurm: Slurm, says: dict[int, str]
) -> None:
    """Also from one suspension that was none to the next."""
    slurm.says = says
    slurm.job(1, 10)
    assert pauses(slurm, 7) == [3, 6, 12, 24, 48, 60, 60]
    slurm.suspensions.begin(slurm.leases.tenants[1])
    slurm.still = {10}
    slurm.look()
    slurm.still = set()
    slurm.look()
    assert not slurm.is_suspended(1)
    assert pauses(slurm, 2) == [3, 6]


def test_slurm_is_not_asked_about_a_job_that_has_been_stopped(slurm: Slurm) -> None:
    slurm.says = {1: "RUNNING"}
    slurm.job(1, 10)
    slurm.stopped.add(SHELL)
    slurm.look()
    slurm.still = {10}
    slurm.look()
    slurm.ask()
    assert slurm.is_suspended(1)
    assert slurm.questions == []


def test_a_process_that_stands_below_slurmstepd_says_so_itself(slurm: Slurm) -> None:
    slurm.job(1, 7)
    slurm.stopped.add(ProcessId(7, 1))
    slurm.look()
    assert not slurm.is_suspended(1)
    slurm.leases.clients.on_suspend = slurm.suspensions.begin
    slurm.leases.clients.suspends(slurm.leases.tenants[1])
    assert slurm.is_suspended(1)


def test_a_suspended_job_that_ends_is_forgotten(slurm: Slurm) -> None:
    slurm.job(1, 10)
    slurm.says = {1: "RUNNING"}
    pauses(slurm, 1)
    slurm.stopped.add(SHELL)
    slurm.look()
    slurm.leases.tenants.close(1)
    slurm.look()
    known = slurm.suspensions
    assert (known.of, known.tops, known.pauses) == ({}, {}, {})


# -- jobs that leave their GPU idle ----------------------------------------------------


def has_memory(node: Node, process: FakeClient) -> None:
    said = client_messages.Memory({UUID: DeviceBytes(100 << 20, 0, 100 << 20)})
    node.leases.clients.memory(node.leases.tenants[1], process, said)


def test_a_job_is_parked_once_it_was_idle_for_long_enough(slurm: Slurm) -> None:
    (process,) = slurm.job(1, 10, swaps=True)
    has_memory(slurm, process)
    process.calls = 5, 0
    idle = IdleJobs(slurm.leases, slurm.busy, lambda: 60 * S)
    slurm.percent = 3
    for _ in range(100):
        slurm.now += S
        to_its_end(idle.beat())
    assert slurm.view(1).parked is None, "its GPU works"
    slurm.percent = 0
    for calls in range(50):
        slurm.now += 30 * S
        process.calls = calls, slurm.now
        to_its_end(idle.beat())
    assert slurm.view(1).parked is None, "it launches something now and then"
    slurm.now += 60 * S
    to_its_end(idle.beat())
    parked = slurm.view(1).parked
    assert parked is not None
    assert parked.by == "limits.park_after"
    assert process.told[-1] == lib.GL_REVOKE


def test_nothing_is_parked_where_the_site_has_not_said_so(slurm: Slurm) -> None:
    (process,) = slurm.job(1, 10, swaps=True)
    has_memory(slurm, process)
    idle = IdleJobs(slurm.leases, slurm.busy, lambda: 0)
    for _ in range(3):
        slurm.now += 10_000 * S
        to_its_end(idle.beat())
    assert slurm.view(1).parked is None
