"""The daemon's pieces of work end with all that they began."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

import pytest

from leased.base import children
from leased.node.tasks import Tasks
from tests.base.test_children import gone


def test_the_end_of_the_work_is_the_end_of_its_children(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A child whose end comes after the loop's is one that nobody waits for, and a traceback."""
    said = tmp_path / "pid"

    async def work() -> None:
        await children.run("sh", "-c", f"echo $$ >{said}.new; mv {said}.new {said}; sleep 600")

    async def begin_and_end() -> None:
        tasks = Tasks(asyncio.get_running_loop())
        tasks.start(work)
        while not said.exists():
            await asyncio.sleep(0.01)
        await tasks.end()
        assert gone(int(said.read_text()))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(begin_and_end())
    gc.collect()
    assert capfd.readouterr().err == ""
