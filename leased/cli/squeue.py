"""Names of jobs, asked of squeue in the background: a slurmctld that hangs keeps nobody waiting."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any

from leased.base import children

PATIENCE_S = 2.0
MOST = 1 << 20  # bytes of squeue's answer
LONGEST = 64  # bytes of a name, so that long ones leave room for those of others

# Names of these jobs by number, of those that Slurm still knows. OSError: nobody answers.
Ask = Callable[[list[int]], Coroutine[Any, Any, dict[int, str]]]


async def ask_squeue(jobs: list[int], env: Mapping[str, str]) -> dict[int, str]:
    """See Ask. env: what squeue gets besides.

    A name may have any characters, and so could pass for the line of another job. So each ends
    with a word that its user cannot know.
    """
    listed, end = ",".join(map(str, jobs)), secrets.token_hex(8)
    command = ["squeue", "--noheader", f"--format=%A|%{LONGEST}j{end}", f"--jobs={listed}"]
    done = await children.run(*command, env=env, patience_s=PATIENCE_S, most=MOST)
    # Of one job that it does not know squeue says so and fails.
    if done.fault or (done.status and "Invalid job id" not in done.err):
        raise OSError(done.fault or "squeue failed")
    found = {}
    for line in done.out.split(f"{end}\n"):
        number, _, name = line.partition("|")
        if number.isdecimal() and int(number) in jobs:
            found[int(number)] = "".join(c if c.isprintable() else "?" for c in name.rstrip(" "))
    return found


def asker(env: Mapping[str, str]) -> Ask:
    return partial(ask_squeue, env=env)


class Question:
    """One question, in a thread of its own. names: the answer; None: there is none (yet)."""

    def __init__(self, ask: Ask, jobs: list[int]):
        self.jobs = jobs
        self.names: dict[int, str] | None = None
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(ask(jobs))
        self._thread = threading.Thread(target=self._run, name="squeue", daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def wait(self) -> None:
        """Until it is over."""
        self._thread.join()

    def stop(self) -> None:
        """End it, and the squeue that it has started."""
        with contextlib.suppress(RuntimeError):  # its loop is closed: it is over
            self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()

    def _run(self) -> None:
        with contextlib.closing(self._loop), contextlib.suppress(OSError, asyncio.CancelledError):
            self.names = self._loop.run_until_complete(self._task)
