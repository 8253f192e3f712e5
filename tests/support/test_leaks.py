"""What a test leaves behind is found, whatever it is, and what it has ended is not."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import leaks, leftovers

WAITING = [sys.executable, "-c", "import sys; sys.stdin.read()"]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[leaks.Watch]:
    """One inside the watch of the test itself; what is meant to stay is not waited for."""
    monkeypatch.setattr(leaks, "ENDING_S", 0.1)
    with leaks.watched() as watch:
        yield watch


def test_nothing_is_left_of_what_has_ended(watch: leaks.Watch) -> None:
    with Path(os.devnull).open() as _, subprocess.Popen(WAITING, stdin=subprocess.PIPE):
        thread = threading.Thread(target=str)
        thread.start()
    thread.join()
    asyncio.run(asyncio.sleep(0))
    assert watch.end() == []


def test_a_descriptor(watch: leaks.Watch) -> None:
    fd = os.open(os.devnull, os.O_RDONLY)
    assert watch.end() == [f"the descriptor {fd} of /dev/null"]
    os.close(fd)


def test_a_thread(watch: leaks.Watch) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    # Python 3.14 gives it a name of its own.
    name = command_of(f"self/task/{thread.native_id}")
    assert watch.end() == [f"the thread {thread.native_id} ({name})"]
    done.set()
    thread.join()


def test_a_thread_that_ends_between_two_looks(
    watch: leaks.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()

    def it_has_ended() -> bool:
        done.set()
        thread.join()
        while Path(f"/proc/self/task/{thread.native_id}").exists():
            pass  # Python is done with it before the kernel is
        return False

    monkeypatch.setattr(watch, "_are_ending", it_has_ended)
    assert watch.end() == []


def command_of(pid: int | str) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def test_a_program_is_named_and_killed(watch: leaks.Watch) -> None:
    with subprocess.Popen(WAITING, stdin=subprocess.PIPE) as program:
        left = watch.end()
        assert f"the child {' '.join(WAITING)}" in left
        assert f"the program {program.pid}: {' '.join(WAITING)}" in left
        assert program.wait() < 0


def test_a_program_in_a_session_of_its_own_that_is_no_child(watch: leaks.Watch) -> None:
    shell = f"{WAITING[0]} -c 'import time; time.sleep(1000)' >/dev/null & echo $!"
    said = subprocess.run(
        ["setsid", "sh", "-c", shell], stdout=subprocess.PIPE, check=True, text=True
    )
    (line,) = watch.end()
    assert line.startswith(f"the program {said.stdout.strip()}: ")


def test_a_child_that_nobody_has_waited_for(watch: leaks.Watch) -> None:
    with subprocess.Popen(["true"]) as program:
        os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
        assert watch.end() == ["the child (nobody has waited for it)"]


def test_a_task_that_is_pending_when_its_loop_ends(watch: leaks.Watch) -> None:
    async def forgets() -> None:
        task = asyncio.create_task(asyncio.sleep(1000), name="forgotten")
        await asyncio.sleep(0)
        assert not task.done()

    asyncio.run(forgets())
    (line,) = watch.end()
    assert line.startswith("the asyncio task <coroutine object sleep")


def test_a_task_that_is_told_to_end_is_not_forgotten(watch: leaks.Watch) -> None:
    async def ends() -> None:
        asyncio.create_task(asyncio.sleep(1000)).cancel()

    asyncio.run(ends())
    assert watch.end() == []


def test_a_program_of_others_that_is_restarted_is_theirs() -> None:
    shared = subprocess.Popen(["sleep", "1000"])
    with leaks.watched() as watch:
        shared.kill()
        shared.wait()
        shared = subprocess.Popen(["sleep", "1000"])
        assert watch.left() == []
    shared.kill()
    shared.wait()


def test_no_process_is_looked_at_where_none_was_started(
    watch: leaks.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def find(name: str, _: str) -> list[leftovers.Leftover]:
        looks.append(name)
        return []

    monkeypatch.setattr(leftovers, "find", find)
    assert watch.end() == []
    assert not looks
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    assert watch.end() == []
    assert looks == [leaks.MARK]
