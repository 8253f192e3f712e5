"""What asks the driver ends in the middle of a step: another one looks what became of it."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Union, cast

import pytest

from leased.moving import steps
from leased.moving.driver import Driver, DriverFault, Lost
from leased.moving.plan import LOCK, LOCKED, RUNNING, UNLOCK, Plan, Step

PID = 1
Answer = Union[str, Exception]


class Asks:
    """In place of one that asks the driver. states: what it hears, one after the other. lost: it
    ends in its first step."""

    def __init__(self, *states: Answer, lost: bool = False):
        self.states = deque(states)
        self.lost = lost
        self.taken: list[str] = []

    async def __aenter__(self) -> Asks:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def state(self, _: int) -> str:
        answer = self.states.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def take(self, step: Step, *_: str) -> None:
        self.taken.append(step.what)
        if self.lost:
            raise Lost("it has ended")


def taken_after_a_lost_lock(*others: Asks | DriverFault) -> tuple[Plan, list[str]]:
    """What the others have the driver do with a process of which the first one asked a lock."""
    plan, left = Plan.of([PID]), deque(others)

    def another() -> Driver:
        made = left.popleft()
        if isinstance(made, DriverFault):
            raise made
        return cast(Driver, made)

    first = Asks(lost=True)
    asyncio.run(steps.take_all(another, cast(Driver, first), plan, "old", "new"))
    assert first.taken == [LOCK]
    return plan, [what for one in others if isinstance(one, Asks) for what in one.taken]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "AGAIN_S", 0.0)


def test_a_lock_that_goes_on_without_who_has_asked_for_it_is_undone() -> None:
    plan, taken = taken_after_a_lost_lock(Asks(RUNNING, RUNNING, LOCKED))
    assert taken == [UNLOCK]
    assert (plan.processes[PID].state, plan.lost) == (RUNNING, set())


@pytest.mark.parametrize("fault", [Asks(Lost("it has ended")), DriverFault("no process is left")])
def test_where_the_next_one_ends_too_a_further_one_says_it(fault: Asks | DriverFault) -> None:
    plan, taken = taken_after_a_lost_lock(fault, Asks(LOCKED))
    assert taken == [UNLOCK]
    assert plan.processes[PID].state == RUNNING


def test_a_process_of_which_none_says_it_is_given_up() -> None:
    plan, taken = taken_after_a_lost_lock(*(Asks(Lost("it has ended")) for _ in range(3)))
    assert not taken
    assert plan.lost == {PID}


def test_one_that_has_ended_is_not() -> None:
    plan, _ = taken_after_a_lost_lock(Asks(DriverFault("it is no process of the driver's")))
    assert not plan.processes
    assert not plan.lost
