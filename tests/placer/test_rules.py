"""Rules that hold whatever users do, found out by hypothesis with a Slurm in memory."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leased.placement.api import Device
from leased.placement.kubeshare import conflict
from leased.placer import marks
from leased.placer.decide import releases
from leased.placer.putting_off import LONGEST_HOLDS
from leased.placer.turn import ticket_of
from leased.slurm.queue_json import QueuedJob
from tests.placer.scenes import HOLD, SETTINGS, T0, Slurm, job, node, reason, understand

LABELS = st.sampled_from(["a", "b", "-", "x.y_z"])
OPTIONS = st.one_of(
    st.builds("{}:{}".format, st.sampled_from(["affinity", "anti-affinity", "exclusion"]), LABELS),
    st.builds("affinity:{},anti-affinity:{}".format, LABELS, LABELS),
    st.builds("request:{}".format, st.sampled_from(["0.3", "0.5", "0.7"])),
    st.builds("request:0.4,exclusion:{}".format, LABELS),
)
ODD = st.text(max_size=30) | st.sampled_from(
    ["", "x" * 1020, "[gpu-lease-placer 1 2 affinity:a]", "[]", "[gpu-lease-placer: ", "\ufffd"]
)


class Placing(RuleBasedStateMachine):
    """Users submit, hold, requeue and end jobs, nodes come and go, and the placer is killed."""

    @initialize(
        gpus=st.integers(1, 2), shards=st.integers(1, 3), reserve_s=st.sampled_from([0, 20])
    )
    def begin(self, gpus: int, shards: int, reserve_s: int) -> None:
        self.slurm = Slurm(
            [node("n1", gpus, shards), node("n2", gpus, shards)],
            settings=replace(SETTINGS, reserve_s=reserve_s),
        )
        self.numbers = itertools.count(1)
        self.comments: dict[str, str] = {}
        self.begins: dict[str, int] = {}
        self.plain: set[str] = set()

    def _pending(self) -> list[QueuedJob]:
        return [one for one in self.slurm.jobs.values() if one.pending]

    def _put(self, one: QueuedJob) -> None:
        self.slurm.jobs[one.label] = one

    @rule(options=OPTIONS, comment=ODD, shards=st.integers(1, 3), user=st.integers(0, 2))
    def submit(self, options: str, comment: str, shards: int, user: int) -> None:
        number, theirs = next(self.numbers), marks.without_reason(comment)
        self.slurm.submit(number, options, comment=theirs, shards=shards, user_id=user)
        self.comments[str(number)] = theirs

    @rule(options=OPTIONS, tasks=st.integers(2, 4))
    def submit_array(self, options: str, tasks: int) -> None:
        number = next(self.numbers) * 1000
        listed = ",".join(map(str, range(tasks)))
        self.slurm.submit(number, options, array_id=number, tasks=listed)

    @rule(data=st.data())
    def hold_or_release(self, data: st.DataObject) -> None:
        if found := self._pending():
            one = data.draw(st.sampled_from(found))
            self._put(replace(one, priority=one.job_id if one.priority == 0 else 0))

    @rule(data=st.data(), seconds=st.integers(40, 2000))
    def put_off_by_its_user(self, data: st.DataObject, seconds: int) -> None:
        if found := [one for one in self._pending() if not one.tasks]:
            one = data.draw(st.sampled_from(found))
            begin = self.slurm.now + seconds
            ticket = ticket_of(one, self.slurm.tickets, understand)
            if begin not in (one.begin, ticket.until if ticket else 0):
                self._put(replace(one, begin=begin))
                self.begins[one.label] = begin

    @rule(data=st.data())
    def end_or_requeue(self, data: st.DataObject) -> None:
        found = [one for one in self.slurm.jobs.values() if one.given]
        if found:
            one = data.draw(st.sampled_from(found))
            if data.draw(st.booleans()):
                self.slurm.end(one.label)
            else:
                begin = self.slurm.now + data.draw(st.sampled_from([5, 120]))
                self._put(replace(one, state="PENDING", nodes="", given={}, begin=begin))
                self.begins.pop(one.label, None)

    @rule(which=st.integers(0, 1))
    def a_node_comes_or_goes(self, which: int) -> None:
        there = self.slurm.nodes[which]
        self.slurm.nodes[which] = replace(there, usable=not there.usable)

    @rule(seconds=st.integers(1, 90))
    def time_passes(self, seconds: int) -> None:
        for _ in range(seconds):
            self._turn()

    def _turn(self) -> None:
        self.slurm.turn()
        down = {each.name for each in self.slurm.nodes if not each.usable}
        self.slurm.starts = lambda one: one.required not in down
        waiting = {one.label for one in self._pending()}
        self.slurm.schedule()
        for label in waiting:
            one = self.slurm.jobs[label]
            if one.given:
                assert self.begins.get(label, 0) <= self.slurm.now, "its user put it off"
                assert marks.mark_of(one.admin_comment) is None
        self.slurm.now += 1

    @invariant()
    def no_job_is_misplaced(self) -> None:
        """All jobs here are put off when they are submitted and no turn is left out."""
        if not hasattr(self, "slurm"):
            return
        there: dict[object, Device] = {}
        for one in self.slurm.jobs.values():
            where = self.slurm.where(one.label)
            if where is None:
                continue
            ticket = self.slurm.tickets.get(one.label) or self.slurm.tickets[str(one.array_id)]
            device = there.get(where, Device(str(where), 0))
            assert conflict(ticket.request, device) is None
            assert ticket.request.share <= device.share + 1e-6
            there[where] = device.joined(ticket.request)

    @invariant()
    def what_users_wrote_stays(self) -> None:
        for label, comment in getattr(self, "comments", {}).items():
            if label in self.slurm.jobs:
                assert marks.without_reason(self.slurm.jobs[label].comment) == comment

    def teardown(self) -> None:
        """Without further changes all comes to rest, and without the placer all jobs begin."""
        if not hasattr(self, "slurm"):
            return
        for _ in range(40):
            self._turn()
        made = len(self.slurm.made)
        for _ in range(5):
            self._turn()
        assert len(self.slurm.made) - made <= 5 * len(self.slurm.jobs)
        for one in self._pending():
            ticket = self.slurm.tickets.get(one.label) or self.slurm.tickets.get(str(one.array_id))
            due = max(
                [self.slurm.now, self.begins.get(one.label, 0), ticket.begin if ticket else 0]
            )
            assert one.begin <= due + HOLD * LONGEST_HOLDS
        for update, _, _ in releases(self.slurm.view(), self.slurm.tickets, understand):
            self.slurm.change(update)
        for one in self._pending():
            assert one.begin <= max(self.slurm.now + 130, self.begins.get(one.label, 0))
            assert not one.required
            assert not reason(one)


TestPlacing = pytest.mark.long(Placing.TestCase)
TestPlacing.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


@given(st.lists(st.tuples(OPTIONS | st.just(""), ODD, ODD), max_size=8), st.integers(0, 9))
@settings(deadline=None)
def test_a_placer_that_is_killed_and_forgets_leaves_jobs_that_begin(
    jobs: list[tuple[str, str, str]], most: int
) -> None:
    slurm = Slurm([node("n1", 1, 2)])
    for number, (options, comment, admin) in enumerate(jobs, 1):
        one = job(number, options, comment=comment)
        slurm.add(replace(one, admin_comment=f"{admin} {one.admin_comment}" if admin else ""))
    for _ in range(4):
        slurm.turn(most)  # killed after so many changes
        slurm.tickets = {}
        slurm.now += 7
    for one in slurm.jobs.values():
        assert one.begin <= slurm.now + HOLD


@given(ODD, ODD)
def test_a_reason_goes_without_a_trace(comment: str, words: str) -> None:
    theirs = marks.without_reason(comment)
    made = marks.with_reason(theirs, words)
    assert marks.without_reason(made) == theirs
    assert marks.with_reason(made, "other") == marks.with_reason(theirs, "other")
    assert len(made.encode(errors="replace")) <= max(marks.LONGEST, len(theirs.encode()))


@given(ODD)
def test_a_mark_is_found_beside_anything(comment: str) -> None:
    theirs = marks.without_mark(comment)
    if "[" not in theirs:
        marked = f"{theirs} [gpu-lease-placer 5 {T0} affinity:a]" if theirs else ""
        if marked:
            assert marks.mark_of(marked) == (5, T0, "affinity:a")
            assert marks.without_mark(marked) == theirs
