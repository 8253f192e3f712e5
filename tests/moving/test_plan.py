"""The plan of a move: every step in its order, and back from wherever it fails."""

from __future__ import annotations

import itertools

import pytest

from leased.moving.plan import CHECKPOINTED, LOCKED, RUNNING, TRIES, Plan, Process, Step

PIDS = (7, 8, 9)
STEPS = ("lock", "checkpoint", "restore", "unlock")


def run(plan: Plan, fails: int = -1) -> list[Step]:
    """Take all steps, of which one fails; returns them."""
    taken: list[Step] = []
    while (step := plan.next()) is not None:
        taken.append(step)
        if len(taken) - 1 == fails:
            plan.failed(step, f"no {step.what}")
        else:
            plan.done(step)
        assert len(taken) < 100
    return taken


def at(plan: Plan) -> set[tuple[str, bool]]:
    return {(process.state, process.away) for process in plan.processes.values()}


def test_all_processes_take_a_step_before_any_takes_the_next() -> None:
    plan = Plan.of(PIDS)
    assert run(plan) == [Step(pid, what, what == "restore") for what in STEPS for pid in PIDS]
    assert plan.has_moved
    assert at(plan) == {(RUNNING, True)}


@pytest.mark.parametrize("fails", range(len(STEPS) * len(PIDS)))
def test_whatever_fails_all_work_again_where_they_were(fails: int) -> None:
    plan = Plan.of(PIDS)
    taken = run(plan, fails)
    assert not plan.has_moved
    assert at(plan) == {(RUNNING, False)}
    assert plan.why == f"no {taken[fails].what}"
    assert not plan.lost
    # What was not locked is not touched, and nobody works on either GPU while others come back.
    if fails < len(PIDS):
        assert {step.what for step in taken[fails + 1 :]} <= {"unlock"}
    back = [STEPS.index(step.what) for step in taken[fails + 1 :]]
    assert back == sorted(back)


def test_a_step_back_is_tried_again_and_its_process_given_up_at_last() -> None:
    plan = Plan({7: Process(CHECKPOINTED, False), 8: Process(LOCKED, False)})
    plan.turn_back("it does not fit")
    tries = 0
    while (step := plan.next()) is not None:
        if step.pid == 7:
            tries += 1
            plan.failed(step, "still not")
        else:
            plan.done(step)
    assert (tries, plan.lost, plan.why) == (TRIES, {7}, "it does not fit")
    assert plan.processes[8] == Process(RUNNING, False)


def test_a_process_that_ends_keeps_no_other_waiting() -> None:
    plan = Plan.of(PIDS)
    for _ in PIDS:
        step = plan.next()
        assert step
        plan.done(step)
    plan.ended(8)
    assert {step.pid for step in run(plan)} == {7, 9}
    assert plan.has_moved
    for pid in (7, 9):
        plan.ended(pid)
    assert plan.next() is None
    assert not plan.has_moved


@pytest.mark.parametrize(
    ("state", "away"), [*itertools.product((RUNNING, LOCKED, CHECKPOINTED), (False, True))]
)
def test_any_state_that_a_crash_leaves_leads_back(state: str, away: bool) -> None:
    plan = Plan({7: Process(state, away)})
    plan.turn_back("the daemon has ended")
    run(plan)
    assert plan.processes[7] == Process(RUNNING, False)
