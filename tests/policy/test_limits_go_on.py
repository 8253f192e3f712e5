"""A job's limit binds it whatever the site does with its GPU's lock and whoever waits meanwhile."""

from __future__ import annotations

import pytest

from leased.core.arbiter import Arbiter
from leased.core.events import Frozen, Opened, Released, Requested, Thawed
from leased.policy import make
from tests.core.scenario import LOCKS, Poke
from tests.core.world import S
from tests.policy.watched import Watched, greedy

OFF, ON, SITES = LOCKS.index("off"), LOCKS.index("on"), LOCKS.index("none")


def lock(second: int, mode: int) -> Poke:
    return Poke(second * 1000, "lock", 0, mode)


@pytest.mark.parametrize("again", [ON, SITES])
def test_a_limit_binds_a_job_alone_once_the_lock_is_on_again(again: int) -> None:
    world = Watched([greedy(limit=0.3)], 40, [lock(10, OFF), lock(20, again)])
    world.check(0, 10, {0: 0.3})
    world.check(25, 40, {0: 0.3})


def test_a_limit_does_not_bind_while_the_lock_is_off() -> None:
    world = Watched([greedy(limit=0.3)], 20, [lock(5, OFF)])
    world.check(8, 20, {0: 1.0})


def test_shares_are_kept_once_the_lock_is_on_again() -> None:
    jobs = [greedy(0.1, 0.2), greedy(0.6), greedy()]
    world = Watched(jobs, 40, [lock(10, OFF), lock(20, ON)])
    world.check(25, 40, {0: 0.2, 1: 0.6, 2: 0.2})


def test_a_waiter_that_was_frozen_ends_the_turn_of_a_job_with_a_limit() -> None:
    a = Arbiter({"d0": 100}, make)
    a.handle(Opened(1, ("d0",), "on", S // 10, limit=0.9), 0)
    a.handle(Opened(2, ("d0",), "on", S // 10), 0)
    a.handle(Requested(1), 0)
    a.handle(Released(1, 1), 1)
    a.handle(Requested(1), S)  # it was idle, so its limit lets it hold for longer than a turn
    a.handle(Requested(2), S)
    due = a.next_deadline()
    assert due == S + S // 10, "the holder's turn, as somebody waits"
    a.handle(Frozen(2), S + 1)
    assert a.next_deadline() != due, "its limit alone ends its turn"
    a.handle(Thawed(2), S + 2)
    assert a.next_deadline() == due
    lease = a.tenants[1].lease
    assert lease is not None
    assert lease.is_awaited
