"""Processes of online and offline jobs are told how their channel groups run, and how much."""

from __future__ import annotations

import pytest
from _gpulease import lib

from leased.leasing.tenant import Tenant
from leased.slices.job import ALWAYS, AS_MADE, LONG_US, SHORT_US
from leased.wire.client_messages import Progress
from tests.leasing.test_time_slices import DUTY, NEW, SLICE, UUIDS, Node, Process

CALLS, BURST_NS = 25, 3_000_000  # in a look: kernels of an online job, and what each takes
LOOK_NS = 500_000_000


class Classes(Node):
    """Jobs that want the GPU all the time."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[Process, Progress] = {}

    def comes(self, job: int, job_class: str) -> tuple[Tenant, Process]:
        tenant = self.job(job, job_class=job_class)
        return tenant, self.process(tenant)

    def works(self, tenant: Tenant, process: Process, burst_ns: float, bursts: int = 0) -> None:
        """What an online process answers of its work since the last look. bursts: that it saw."""
        before = self.told.get(process, Progress(0))
        ns = before.busy_ns + round(CALLS * burst_ns)
        calls, seen, bursts = before.calls + CALLS, before.seen_ns + LOOK_NS, before.bursts + bursts
        self.told[process] = Progress(calls, ns, seen, bursts=bursts, done=calls, done_ns=ns)
        self.leases.clients.progress(tenant, process, self.told[process])

    def chosen(self, job: int) -> tuple[int, int]:
        return self.slices.chosen(job, UUIDS[0])[:2]


def test_an_online_job_and_an_offline_one_are_told_as_soon_as_both_are_there() -> None:
    node = Classes()
    _, offline = node.comes(1, "offline")
    node.look(2, (offline, 100))
    assert offline.take() == NEW, "alone it has the driver's slices"
    _, online = node.comes(2, "online")
    assert online.take()[-1] == (DUTY, ALWAYS)
    assert node.chosen(2) == (LONG_US, ALWAYS)
    assert offline.take() == [(SLICE, SHORT_US)]


@pytest.mark.parametrize("beside", ["offline", "none"])
@pytest.mark.parametrize("first", [True, False])
def test_slices_are_right_before_the_first_kernel(beside: str, first: bool) -> None:
    """Nobody has looked at the GPU yet, and the later one has not said yet whether its groups can
    be controlled: it hears of its slice before it is let go on."""
    node = Classes()
    jobs = {"online": node.job(1, job_class="online"), beside: node.job(2, job_class=beside)}
    come = {name: node.process(jobs[name], state=None) for name in sorted(jobs, reverse=first)}
    slices = {
        name: [value for kind, value in process.take() if kind == SLICE][-1:]
        for name, process in come.items()
    }
    assert slices == {"online": [LONG_US], beside: [SHORT_US]}
    told = list(come.values())[-1].told
    assert told.index(lib.GL_RUN) < told.index(lib.GL_GRANT)


def test_two_online_jobs_share_evenly_and_several_offline_ones_have_longer_slices() -> None:
    node = Classes()
    jobs = [node.comes(n, job_class) for n, job_class in enumerate(("online", "offline"), 1)]
    node.look(1, (jobs[1][1], 100))
    jobs.append(node.comes(3, "offline"))
    assert SHORT_US < node.chosen(2)[0] == node.chosen(3)[0] < 2048
    jobs.append(node.comes(4, "online"))
    assert node.chosen(1) == node.chosen(4) == (AS_MADE, ALWAYS)


def test_a_job_without_a_class_gives_way_too_but_is_never_stopped() -> None:
    node = Classes()
    tenant, online = node.comes(1, "online")
    _, other = node.comes(2, "none")
    for _ in range(100):
        node.works(tenant, online, BURST_NS * 2)
        node.look(1, (other, 100))
        assert node.chosen(2) == (SHORT_US, ALWAYS)


@pytest.mark.parametrize("refused", [1, 2])
def test_a_job_whose_groups_cannot_be_controlled_is_left_as_it_is(refused: int) -> None:
    node = Classes()
    jobs = {n: node.comes(n, job_class) for n, job_class in ((1, "online"), (2, "offline"))}
    node.look(1, (jobs[2][1], 100))
    node.say(*jobs[refused], lib.GL_CHANNELS_REFUSED)
    node.look(1, (jobs[2][1], 100))
    assert node.chosen(refused) == (AS_MADE, ALWAYS)


def test_an_offline_job_that_slows_an_online_one_down_is_cut_and_comes_back() -> None:
    """Twice as long beside the offline job, in proportion to its duty; and then not any more."""
    node = Classes()
    tenant, online = node.comes(1, "online")
    _, offline = node.comes(2, "offline")
    late = [ALWAYS, node.chosen(2)[1]]
    for slows, looks in ((1.0, 400), (0.0, 400)):
        for _ in range(looks):
            # It has answered at the last look.
            node.works(tenant, online, BURST_NS * (1 + slows * late[-2] / ALWAYS))
            node.look(1, (offline, 80), (online, 15))  # it always has unfinished work
            late.append(node.chosen(2)[1])
        if slows:
            assert [duty for duty in late if duty][-1] < 100, "to a twentieth"
            assert (node.slices.slowdown_of(UUIDS[0]) or 1.0) < 0.08
    assert sum(late[-100:]) > 95 * ALWAYS
    assert {value for kind, value in online.take() if kind == DUTY} == {ALWAYS}
    cut = {(kind, value) for kind, value in offline.take() if kind != SLICE}
    assert {kind for kind, value in cut if value < ALWAYS} == {lib.GL_RUN_DUTY_COPIES}
    assert {kind for kind, value in cut if value == ALWAYS} == {DUTY}


class CutPair(Classes):
    """An offline job that has been cut, beside an online one."""

    def __init__(self) -> None:
        super().__init__()
        self.tenant, self.online = self.comes(1, "online")
        _, self.offline = self.comes(2, "offline")
        self.late = [ALWAYS, ALWAYS]
        while self.late[-1] in (0, ALWAYS):
            self.goes_on()
        self.offline.take()

    def goes_on(self, slows: float = 1.0) -> None:
        """Time for one look more, in which the online job is slowed down as it is cut."""
        self.works(self.tenant, self.online, BURST_NS * (1 + slows * self.late[-2] / ALWAYS))
        self.look(1, (self.offline, 80), (self.online, 15))
        self.late.append(self.chosen(2)[1])


def test_what_is_cut_of_an_offline_job_is_its_own_while_online_ones_rest() -> None:
    node = CutPair()
    assert node.online.told[-1] == lib.GL_WATCH
    node.slices.rests(node.tenant, node.online, True)
    assert node.offline.take() == [(DUTY, ALWAYS)]
    for _ in range(5):
        node.goes_on()
    assert node.offline.take() == [], "it goes on to have it"
    node.slices.rests(node.tenant, node.online, False)
    assert node.offline.take() == [(lib.GL_RUN_DUTY_COPIES, node.late[-1])]


def test_it_is_cut_as_long_as_one_process_of_an_online_job_works() -> None:
    node = CutPair()
    other = node.process(node.tenant)
    node.slices.rests(node.tenant, node.online, True)
    assert node.offline.take() == []
    node.slices.rests(node.tenant, other, True)
    assert node.offline.take() == [(DUTY, ALWAYS)]
    node.slices.rests(node.tenant, node.online, False)
    node.slices.rests(node.tenant, other, False)
    assert node.offline.take() == [(lib.GL_RUN_DUTY_COPIES, node.late[-1])]
    node.slices.rests(node.tenant, node.online, True)
    node.leases.clients.detach(node.tenant, other)
    node.goes_on()
    assert node.offline.take() == [(DUTY, ALWAYS)], "the one that worked has ended"


def test_online_jobs_are_asked_only_while_somebody_is_cut() -> None:
    node = CutPair()
    node.slices.rests(node.tenant, node.online, True)
    while node.late[-1] != ALWAYS:
        node.goes_on(slows=0.0)
    assert not node.online.rests, "it may work again, and say nothing of it"
    node.online.told.clear()
    node.goes_on(slows=0.0)
    assert lib.GL_WATCH not in node.online.told


def test_what_a_process_says_of_times_that_it_has_not_seen_does_not_count() -> None:
    node = Classes()
    tenant, online = node.comes(1, "online")
    node.works(tenant, online, BURST_NS, 7)
    assert online.work is None, "from its start to its first answer it has not looked"
    node.now += LOOK_NS
    node.works(tenant, online, BURST_NS, 5)
    assert online.work == (CALLS, CALLS * BURST_NS, 5, 0)
    node.now += 10 * LOOK_NS
    node.works(tenant, online, BURST_NS, 7)
    assert online.work == (CALLS, CALLS * BURST_NS, 5, 0)
