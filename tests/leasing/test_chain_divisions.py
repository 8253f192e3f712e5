"""Chains that have a GPU for themselves: what their components do becomes a division, and that the
time slices of their processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from _gpulease import lib

from leased.admin import details
from leased.chains import optimiser
from leased.config.options import MPS
from leased.leasing import chain_divisions, chain_parts
from leased.leasing.tenant import Tenant
from leased.leasing.time_slices import IN_CHAIN
from leased.processes.identity import ProcessId
from leased.slices.job import LONG_US
from leased.wire import client_messages
from tests.chains.model import Chain
from tests.leasing.test_time_slices import LOOK_NS, SLICE, UUIDS, Node, Process, S

SLOW_FIRST = Chain((1000.0,) * 3, (80, 10, 10), crowd=0.1)


class Chained(Node):
    """A chain of jobs 1 and 2, the second of two processes, and a chain's throughput."""

    def __init__(self, chain: Chain = SLOW_FIRST) -> None:
        super().__init__()
        self.now = 1000 * S
        self.chain, self.done = chain, 0.0
        self.one, self.two = self.member(1), self.member(2)
        self.components = [self.works(t) for t in (self.one, self.two, self.two)]
        self.division_by = self.part

    def member(self, job: int, chain: str = "c", uid: int = 1000, gpus: int = 1) -> Tenant:
        tenant = self.job(job, gpus=gpus)
        tenant.given, tenant.uid = replace(tenant.given, chain=chain), uid
        return tenant

    def works(self, tenant: Tenant) -> Process:
        """A process that has submitted work."""
        process = self.process(tenant)
        self.says(tenant, process, 1)
        return process

    def says(self, tenant: Tenant, process: Process, calls: int) -> None:
        said = client_messages.Progress(calls, 0, 0, 0)
        self.leases.clients.progress(tenant, process, said)

    def by_mps(self, **options: Any) -> None:
        """The GPU is shared by MPS from now on, and these are options of the first job."""
        for tenant in (self.one, self.two):
            tenant.given = replace(tenant.given, space=MPS)
        self.one.given = replace(self.one.given, **options)
        self.division_by = lambda process: float(process.part.percent if process.part else 100)

    @property
    def last(self) -> Process:
        return self.components[-1]

    def part(self, process: Process) -> float:
        """Of the GPU, as its slice says."""
        slice_us = process.runs[UUIDS[0]][0]
        return 100 * slice_us / LONG_US if slice_us else 100.0

    @property
    def is_divided(self) -> bool:
        return any(device.divided for device in self.slices.devices.values())

    @property
    def division(self) -> tuple[int, ...]:
        return tuple(round(self.division_by(process)) for process in self.components)

    @property
    def why(self) -> str:
        return self.leases.chains.of[UUIDS[0]].why

    def runs(self, seconds: float) -> optimiser.Optimiser:
        for _ in range(round(seconds * S / LOOK_NS)):
            self.step()
        return self.leases.chains.of[UUIDS[0]].optimiser

    def step(self) -> None:
        self.now += LOOK_NS
        self.done += self.chain.throughput(self.division) * LOOK_NS / S
        self.says(self.two, self.last, int(self.done))
        self.slices.measured(UUIDS[0], 100, {})
        self.leases.chains.look(UUIDS[0])


def test_processes_of_a_chain_have_slices_by_the_division_that_was_found() -> None:
    node = Chained()
    found = node.runs(120)
    assert found.why == optimiser.KEEPS
    assert found.components == (10, 20, 21)
    assert node.division == found.division
    assert found.division[0] == 100
    assert max(found.division[1:]) < 50
    assert all(process.take()[-1][0] == SLICE for process in node.components)


def test_status_shows_the_chain() -> None:
    node = Chained()
    node.runs(1)
    assert node.why == optimiser.WAITS
    before = details.chain(node.leases, UUIDS[0])
    node.runs(120)
    after = details.chain(node.leases, UUIDS[0])
    assert before is not None
    assert after is not None
    assert (before["name"], before["trials"], before["gain"]) == ("c", [], None)
    assert before["calls_s"] is None
    assert after["calls_s"] == pytest.approx(node.chain.throughput(node.division), rel=0.01)
    assert [(one["job"], one["pid"], one["part"]) for one in before["components"]] == [
        *(("1", 10, 1.0), ("2", 20, 1.0), ("2", 21, 1.0))
    ]
    assert after["bottleneck"] == 0
    assert after["gain"]
    assert after["trials"][0] == 1.0
    assert after["plain"][0] == 0
    assert max(after["trials"]) == pytest.approx(1 + after["gain"], rel=0.01)
    assert len(after["trials"]) <= after["bound"]
    assert all(after["trials"][place] > 1 for place in after["kept"])
    assert node.slices.chosen(1, UUIDS[0]).why == IN_CHAIN


@pytest.mark.parametrize("chain", ["d", ""])
@pytest.mark.parametrize("uid", [1000, 1001])
def test_beside_another_job_a_chain_is_not_divided(chain: str, uid: int) -> None:
    """And it is again once that one has ended."""
    node = Chained()
    node.runs(120)
    other = node.member(3, chain, uid)
    process = node.process(other)
    node.now += LOOK_NS
    node.leases.chains.look(UUIDS[0])
    assert not node.leases.chains.of
    assert not node.is_divided
    node.leases.clients.detach(other, process)
    node.leases.tenants.close(3)
    assert node.runs(120).why == optimiser.KEEPS


def test_another_user_is_of_another_chain() -> None:
    node = Chained()
    node.process(node.member(3, uid=1001))
    node.leases.chains.look(UUIDS[0])
    assert not node.leases.chains.of


def test_a_component_that_comes_or_goes_begins_it_anew() -> None:
    """A process is none until it has submitted work, as one that only keeps memory."""
    node = Chained()
    before = node.runs(120)
    late = node.process(node.one)
    late.process = ProcessId(late.pid, 9)
    node.says(node.one, late, 0)
    assert node.runs(2) is before
    late.told.clear()
    node.leases.chains.look(UUIDS[0])
    assert late.told == [lib.GL_MEASURE]
    node.says(node.one, late, 1)
    anew = node.runs(1)
    assert anew is not before
    assert anew.components == (10, late.pid, 20, 21)
    assert node.division == (100, 100, 100)
    node.leases.clients.detach(node.one, late)
    assert node.runs(120).components == (10, 20, 21)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"request": 0.5}, chain_divisions.HAS_SHARE),
        ({"limit": 0.5}, chain_divisions.HAS_SHARE),
        ({"job_class": "offline"}, chain_divisions.HAS_SHARE),
        ({}, chain_divisions.SEVERAL_GPUS),
    ],
)
def test_shares_classes_and_several_gpus_are_not_divided(options: dict[str, Any], why: str) -> None:
    node = Chained()
    other = node.member(3, gpus=1 if options else 2)
    other.given = replace(other.given, **options)
    node.process(other)
    node.runs(60)
    assert node.why == why
    assert not node.is_divided


def test_a_chain_whose_slices_cannot_be_set_is_not_divided() -> None:
    node = Chained()
    node.runs(120)
    process = node.process(node.one, state=lib.GL_CHANNELS_REFUSED)
    node.runs(60)
    assert node.why == chain_divisions.NOT_CONTROLLED
    assert not node.is_divided
    node.leases.clients.detach(node.one, process)
    assert node.runs(120).why == optimiser.KEEPS


def test_jobs_without_a_chain_are_not_asked() -> None:
    node = Node()
    process = node.process(node.job(1))
    process.told.clear()
    node.leases.chains.look(UUIDS[0])
    assert process.told == []
    assert not node.leases.chains.of


def test_a_chain_that_ends_leaves_nothing() -> None:
    node = Chained()
    node.runs(120)
    for tenant in (node.one, node.two):
        for process in list(tenant.clients):
            node.leases.clients.detach(tenant, process)
        node.leases.tenants.close(tenant.job_id)
    node.leases.chains.look(UUIDS[0])
    assert not node.leases.chains.of
    assert not node.is_divided


def test_in_the_plain_division_jobs_have_the_slices_that_they_would_have_without_a_chain() -> None:
    flat = Chained(Chain((1000.0,) * 3, (5, 5, 5)))
    found = flat.runs(300)
    assert found.why == optimiser.PLAIN
    assert not flat.is_divided
    flat.look(10, (flat.components[0], 15), (flat.last, 85))
    assert [process.runs[UUIDS[0]][0] for process in flat.components] == [
        flat.slices.chosen(job, UUIDS[0]).slice_us for job in (1, 2, 2)
    ]
    assert flat.slices.chosen(1, UUIDS[0]).slice_us == LONG_US


def test_under_mps_components_have_parts_by_the_division_that_was_found() -> None:
    node = Chained()
    node.by_mps()
    for tenant, process in zip((node.one, node.two, node.two), node.components):
        node.leases.chains.parts.said(tenant, process)
    found = node.runs(120)
    assert (found.why, node.is_divided) == (optimiser.KEEPS, False)
    assert node.division == found.division
    assert found.division[0] == 100
    assert max(found.division[1:]) < 50
    shown = details.chain(node.leases, UUIDS[0])
    assert shown is not None
    assert shown["by"] == "parts"
    said = [value for kind, value, *_ in node.last.take() if kind == lib.GL_RUN_PART]
    assert (said[0], said[-1]) == (100, found.division[-1]), "it was told first that it has all"
    node.process(node.member(3, ""))
    node.leases.chains.look(UUIDS[0])
    assert node.division == (100, 100, 100), "another job is there"


@pytest.mark.parametrize("by_mps", [False, True])
def test_the_keeper_of_its_buffers_is_no_component(by_mps: bool) -> None:
    """Making and giving up buffers counts as work, and it began after the last component."""
    node = Chained()
    if by_mps:
        node.by_mps()
        for tenant, process in zip((node.one, node.two, node.two), node.components):
            node.leases.chains.parts.said(tenant, process)
    keeper = node.works(node.two)
    keeper.keeper = True
    found = node.runs(120)
    assert (found.why, found.components) == (optimiser.KEEPS, (10, 20, 21))


@pytest.mark.parametrize(
    ("says", "options", "why"),
    [
        (2, {}, chain_divisions.FIXED_PART),
        (3, {"sm": 0.5}, chain_divisions.HAS_SHARE),
    ],
)
def test_under_mps_a_chain_is_not_divided(says: int, options: dict[str, Any], why: str) -> None:
    """says: how many of its components change their parts."""
    node = Chained()
    node.by_mps(**options)
    for tenant, process in list(zip((node.one, node.two, node.two), node.components))[:says]:
        node.leases.chains.parts.said(tenant, process)
    node.runs(60)
    assert node.why == why
    assert node.division == (100, 100, 100)


class Again(Chained):
    """Under MPS; of each component another process starts it, and starts it again after so many
    looks, or `ends` or `comes` not at all. began: the part with which it began."""

    LOOKS = 7

    def __init__(self) -> None:
        super().__init__()
        self.by_mps()
        self.ends = self.comes = True
        self.told: set[int] = set()
        self.fresh: dict[int, int] = {}  # by place, looks for which one is slow that has come back
        self.away: dict[int, int] = {}  # by place, looks until it comes back
        self.starters = [self.starter(tenant) for tenant in (self.one, self.two, self.two)]
        self.below = {c.pid: s.pid for c, s in zip(self.components, self.starters)}
        self.began = {process.pid: 100 for process in self.components}
        self.leases.chains.parts.ancestors = lambda pid: [pid, self.below[pid]]
        self.restarts = 0

    def starter(self, tenant: Tenant) -> Process:
        process = Process(100 * tenant.job_id + len(tenant.clients))
        self.leases.clients.attach(tenant, process, client_messages.Hello(0, False, {}))
        self.leases.chains.parts.said(tenant, process)
        return process

    @property
    def division(self) -> tuple[int, ...]:
        slow = dict.fromkeys(self.away, 0) | dict.fromkeys(self.fresh, 1)
        return tuple(slow.get(place, self.began[c.pid]) for place, c in self.all())

    def all(self) -> list[tuple[int, Process]]:
        return list(enumerate(self.components))

    def job_of(self, place: int) -> Tenant:
        return self.two if place else self.one

    def step(self) -> None:
        self.fresh = {place: looks - 1 for place, looks in self.fresh.items() if looks > 1}
        for place, process in self.all():
            wanted = self.starters[place].part
            assert wanted is not None
            if place not in self.away and wanted.percent != self.began[process.pid]:
                self.told.add(place)
            if place in self.told and self.ends:
                self.end(place)
            elif place in self.away:
                self.come(place, wanted.percent)
        super().step()

    def end(self, place: int) -> None:
        self.told.remove(place)
        self.leases.clients.detach(self.job_of(place), self.components[place])
        self.away[place] = self.LOOKS
        self.restarts += 1

    def come(self, place: int, part: int) -> None:
        self.away[place] -= self.comes
        if self.away[place]:
            return
        del self.away[place]
        self.fresh[place] = 3
        process = Process(1000 + self.restarts * 10 + place)
        self.below[process.pid], self.began[process.pid] = self.starters[place].pid, part
        self.leases.clients.attach(self.job_of(place), process, client_messages.Hello(0, True, {}))
        self.components[place] = process
        self.says(self.job_of(place), process, 1)
        self.done = self.done if process is not self.last else 1.0

    def says(self, tenant: Tenant, process: Process, calls: int) -> None:
        if process in tenant.clients:
            super().says(tenant, process, calls)


def test_what_happens_while_components_are_started_again_counts_for_no_trial() -> None:
    """Each takes several seconds, and all of a chain may be away at once."""
    node = Again()
    first = node.runs(10)
    found = node.runs(400)
    assert found is first
    assert (found.why, found.components) == (optimiser.KEEPS, tuple(s.pid for s in node.starters))
    assert node.division == found.division
    for trial in found.trials:
        assert trial.throughput == pytest.approx(SLOW_FIRST.throughput(trial.division), rel=0.02)
    assert node.restarts <= len(node.components) * len(found.trials)


def test_the_next_search_of_components_that_are_started_again_comes_after_an_hour() -> None:
    node = Again()
    node.runs(400)
    before = node.restarts
    node.chain = Chain((1000.0,) * 3, (10, 10, 80), crowd=0.1)
    node.runs(2700)
    assert node.restarts == before
    assert node.runs(1800).found.bottleneck == 2  # type: ignore[union-attr]


def test_one_that_does_not_end_is_waited_for_in_bounds() -> None:
    node = Again()
    node.ends = False
    node.runs(400)
    assert node.why == chain_divisions.LATE
    assert [s.part.percent for s in node.starters if s.part] == [100, 100, 100]
    node.ends = True
    assert node.runs(800).why == optimiser.KEEPS


def test_the_others_go_on_without_one_that_does_not_come_back() -> None:
    node = Again()
    node.comes = False
    node.runs(12)
    assert node.away
    away, node.comes = dict(node.away), True
    node.away = {place: 10_000 for place in away if not place}
    node.runs(600)
    assert node.leases.chains.of[UUIDS[0]].optimiser.components == (
        *(starter.pid for starter in node.starters[1:]),
    )


def test_how_often_one_is_started_again_within_an_hour_has_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chain_parts, "RESTARTS_MOST", 2)
    node = Again()
    node.runs(400)
    assert node.why == chain_divisions.TIRED
    assert node.division == (100, 100, 100)
    assert max(s.restart.times for s in node.starters if s.restart) <= 3
    monkeypatch.undo()
    assert node.runs(400).why == optimiser.KEEPS
