"""The daemon's pieces of work end with all that they began."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import cast

import pytest

from leased.base import children
from leased.base.waiting import OTHERS_AFTER_S, to_next
from leased.node.tasks import Tasks
from tests.base.test_children import gone


def test_the_end_of_the_work_is_the_end_of_its_children(capfd: pytest.CaptureFixture[str]) -> None:
    """A child whose end comes after the loop's is one that nobody waits for, and a traceback."""

    async def begin_and_end() -> None:
        loop = asyncio.get_running_loop()
        said: asyncio.Future[bytes] = loop.create_future()

        async def work() -> None:
            await children.run("sh", "-c", "echo $$; exec sleep 600", take=said.set_result)

        tasks = Tasks(loop)
        tasks.start(work)
        pid = int(await said)
        await tasks.end()
        assert gone(pid)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(begin_and_end())
    gc.collect()
    assert capfd.readouterr().err == ""


def test_work_of_several_periods_is_done_at_the_same_moments() -> None:
    now = 1234.56789
    moments = {now + to_next(period, now) for period in (0.25, 0.5, 1.0)}
    assert max(moments) == pytest.approx(1235)
    assert min(moments) == pytest.approx(1234.75)
    assert to_next(0.5, 1235.0 - 1e-9) == pytest.approx(0.5), "a timer that was early"
    assert to_next(0.5, 1235.0 + 1e-3) == pytest.approx(0.499)


class Clock:
    """A loop whose time passes as a test says."""

    def __init__(self) -> None:
        self.now = 1234.567
        self.wakes = 0
        self.at: tuple[float, Callable[[], None]] | None = None

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Callable[[], None]) -> Clock:
        self.at = when, call
        return self

    def cancel(self) -> None:
        self.at = None

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while self.at is not None and self.at[0] <= end:
            when, call = self.at
            self.now = max(self.now, when)
            self.wakes += 1
            call()
        self.now = end


def test_behind_a_long_look_the_loop_has_its_turn_before_the_next_one() -> None:
    clock, wakes = Clock(), []
    tasks = Tasks(cast(asyncio.AbstractEventLoop, clock))

    def look(took_s: float) -> None:
        wakes.append(clock.wakes)
        clock.now += took_s

    for took_s in (2 * OTHERS_AFTER_S, 0.0, 0.0, 2 * OTHERS_AFTER_S, 0.0):
        tasks.every(0.5, partial(look, took_s))
    clock.advance(0.5)
    assert wakes == [1, 2, 2, 2, 3]


def test_looks_of_several_periods_wake_the_process_once_for_each_moment() -> None:
    clock, looks, pause = Clock(), Counter[str](), [0.25]
    tasks = Tasks(cast(asyncio.AbstractEventLoop, clock))
    for name, period in {"a": 0.5, "b": 0.5, "c": 1.0}.items():
        tasks.every(period, partial(looks.update, [name]))
    tasks.every(lambda: pause[0], partial(looks.update, ["jobs"]))
    clock.advance(10)
    assert looks == {"a": 20, "b": 20, "c": 10, "jobs": 40}
    assert clock.wakes == 40
    pause[0] = 1.0
    clock.advance(0.25)
    before = clock.wakes
    clock.advance(10)
    assert clock.wakes - before == 20


def test_a_look_that_fails_is_named_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def look() -> None:
        looks: list[int] = []
        ended = asyncio.Event()

        def fails() -> None:
            raise ValueError("the first look")

        async def fails_later() -> None:
            looks.append(len(looks))
            await asyncio.sleep(0)
            if len(looks) == 3:
                ended.set()
            raise ValueError("the second look")

        tasks = Tasks(asyncio.get_running_loop())
        tasks.every(0.01, fails)
        tasks.every(0.01, fails_later)
        await ended.wait()
        await tasks.end()
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(look())
    named = {record.getMessage() for record in caplog.records}
    assert {name in str(named) for name in ("(fails)", "(fails_later)")} == {True}


def test_a_look_that_lasts_is_not_begun_again() -> None:
    async def look() -> None:
        begun: list[int] = []
        seen, goes_on = asyncio.Event(), asyncio.Event()

        async def lasts() -> None:
            begun.append(len(begun))
            await goes_on.wait()

        tasks, others = Tasks(asyncio.get_running_loop()), iter(range(20))
        tasks.every(0.01, lasts)
        tasks.every(0.01, lambda: seen.set() if next(others) == 10 else None)
        await seen.wait()
        assert begun == [0]
        await tasks.end()

    asyncio.run(look())
