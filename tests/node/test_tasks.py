"""The daemon's pieces of work end with all that they began."""

from __future__ import annotations

import asyncio
import gc

import pytest

from leased.base import children
from leased.node.tasks import Tasks, to_next
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
