"""Every order of events in a small cluster, and faults that this search must find."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leased.across.across import Across
from leased.across.actions import Action, EndWanted, Wants
from leased.across.bounds import Bounds
from leased.across.coordinator import Coordinator
from leased.across.member import Member
from leased.across.messages import State
from tests.across.search import clocks, explore, wander
from tests.across.world import Budget, Fault, World
from tests.support.together import zip_strict

PAIR = {"j1": ("a", "b"), "j2": ("b", "a")}
ONE = {"j1": ("a", "b")}
CHAIN = {"j1": ("a", "b"), "j2": ("b", "c")}
THREE = {"j1": ("a", "b", "c")}


@pytest.mark.parametrize(
    ("jobs", "budget"),
    [
        (PAIR, Budget()),
        (THREE, Budget(lost=1)),
        (ONE, Budget(lost=1, times=1)),
        (ONE, Budget(late=1, doubled=1)),
        (ONE, Budget(times=1, ends=1)),
        (ONE, Budget(crashes=1)),
        (ONE, Budget(lost=1, times=2)),
    ],
)
def test_no_order_of_events_lets_half_a_job_run_or_two_jobs_wait_for_each_other(
    jobs: dict[str, tuple[str, ...]], budget: Budget
) -> None:
    assert explore(jobs, budget, finish_each=20) > 100


@pytest.mark.parametrize(
    ("jobs", "budget"),
    [
        (ONE, Budget(steps=2)),
        (ONE, Budget(steps=1, lost=1, times=1)),
        (PAIR, Budget(steps=1)),
    ],
)
def test_a_step_that_begins_or_ends_on_a_further_node_at_any_time(
    jobs: dict[str, tuple[str, ...]], budget: Budget
) -> None:
    """Of the first job there is none on its second node at the beginning."""
    assert explore(jobs, budget, finish_each=20, absent=[("b", "j1")]) > 100


def test_how_many_messages_a_handoff_takes_and_how_many_follow_each_other() -> None:
    """Of two jobs on the same two nodes that always want them: stop, stopped, rest, the vote of the
    next one, run; then it says that it runs. Where all others wait meanwhile, nothing is said."""
    jobs = {"j1": ("a", "b"), "j2": ("a", "b")}
    world = World(jobs, clocks(jobs), Budget(), Bounds())
    world.begin()
    handoffs = [handoff(world, jobs) for _ in range(10)]
    assert [job for job, _, _ in handoffs[2:]] == ["j1", "j2"] * 4
    assert {(several, all_of) for _, several, all_of in handoffs[2:]} == {(6, 9)}


def handoff(world: World, jobs: Iterable[str]) -> tuple[str, int, int]:
    """Ends the turn of the job that runs, and lets time stand still until another one runs. Returns
    which, how many messages followed each other, and how many there were."""
    world.ran = frozenset(jobs)
    ended = {job for _, job in world.runs}
    for job in ended:
        world.tell("a", EndWanted(job))
    several = count = 0
    while world.flying or world.answers:
        while world.answers:
            world.happen(0)
        for job in ended:
            world.tell("b", Wants(job, True))
        arriving = len(world.flying)
        several, count = several + bool(arriving), count + arriving
        for _ in range(arriving):
            world.deliver(0)
    ((job,),) = {tuple({job for _, job in world.runs})}
    return job, several, count


@settings(max_examples=20)
@given(st.data())
def test_larger_clusters_in_which_much_goes_wrong(data: st.DataObject) -> None:
    nodes = ["a", "b", "c", "d"]
    of_one = st.permutations(nodes).flatmap(
        lambda order: st.integers(2, 4).map(lambda n: tuple(order[:n]))
    )
    jobs = dict(zip_strict(("j1", "j2", "j3"), data.draw(st.tuples(of_one, of_one, of_one))))
    chosen = iter(data.draw(st.lists(st.integers(0, 999), min_size=120, max_size=120)))
    wander(jobs, MUCH._replace(steps=3), lambda n: next(chosen) % n, 120)


def shorter(_: Bounds) -> int:
    return 1


def gone(world: World, node: str) -> None:
    """The next daemon knows nothing of what was promised."""
    world.note(node, {})
    AS_IT_IS(world, node)


def any_stopped(coordinator: Coordinator) -> bool:
    return any(report.state == State.STOPPED for report in coordinator.heard.values())


def never(*_: Any) -> bool:
    return False


def always(*_: Any) -> bool:
    return True


AS_IT_IS = World.start
MUCH = Budget(late=5, lost=4, doubled=5, crashes=3, times=25, ends=3)


FIRST = 450  # so near is a way that shows each planted fault today


def wander_often(ways: int) -> None:
    for way in range(FIRST, FIRST + ways):
        wander(ONE, MUCH, random.Random(way).randrange, 120)


@pytest.mark.parametrize(
    ("of", "name", "planted"),
    [
        pytest.param(Member, "is_outdated", never, id="outdated orders are followed"),
        pytest.param(Member, "counts", always, id="outdated votes count"),
        pytest.param(Bounds, "hold_ns", property(shorter), id="promises are too short"),
        pytest.param(Coordinator, "all_stopped", any_stopped, id="one has stopped"),
        pytest.param(Coordinator, "is_current", always, id="reports of older rounds count"),
    ],
)
def test_a_planted_fault_is_found(
    monkeypatch: pytest.MonkeyPatch, of: type, name: str, planted: Any
) -> None:
    monkeypatch.setattr(of, name, planted)
    with pytest.raises(Fault):
        wander_often(1000)


def at_once(member: Member, nodes: tuple[str, ...], gpus: int) -> list[Action]:
    """Its GPUs are the job's from then on, whatever the rest of it does."""
    member.nodes, member.gpus, member.changed = nodes, member.gpus or gpus, True
    return []


def test_a_step_that_is_taken_up_while_others_run_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Member, "come", at_once)
    with pytest.raises(Fault, match="may give its GPU to others"):
        explore(ONE, Budget(steps=1), absent=[("b", "j1")])


def test_promises_that_a_restart_loses_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "start", gone)
    with pytest.raises(Fault, match="may give its GPU to others"):
        explore(ONE, Budget(crashes=1), finish_each=50)


def patient(across: Across, member: Member) -> bool:
    """It waits for whoever has promised its GPUs to another job, and that one for it."""
    others = {other.state for other in across.in_the_way(member)}
    return member.state == State.REST and member.turn and others <= {State.HELD}


def test_jobs_that_wait_for_each_other_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Across, "yields", never)
    monkeypatch.setattr(Across, "ready", patient)
    with pytest.raises(Fault, match="wait for ever"):
        explore(PAIR, Budget())
