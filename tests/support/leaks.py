"""What a test leaves behind, in its own process and of the programs that it has started.

A descriptor, a thread, a child, an asyncio task or a program that a test has begun and not
ended fails it: the next test would meet it, and in the daemon it would be there for good.
Programs are found by a word in their environment, in whatever session or cgroup they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import resource
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import leftovers
from tests.support.children import children_of

MARK = "GPUL_TEST"
ENDING_S = 60.0  # for what has been told to end already
PAUSE_S = 0.02
CANCEL_LEFT = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined] # noqa: SLF001


@dataclass(frozen=True)
class Held:
    """What this process has: descriptors with what is behind them, threads, children."""

    descriptors: frozenset[tuple[int, str]]
    threads: frozenset[tuple[int, str]]
    children: Counter[str]  # by their commands: a test may restart what others share


_kept_children: set[int] = set()
_kept_descriptors: set[int] = set()
_started: list[int] = []  # the pids of all programs that a kept child has started


def keep(child: int, descriptor: int) -> None:
    """Both serve all tests that this process runs: no test leaves them behind. The children of the
    child are the tests' own."""
    _kept_children.add(child)
    _kept_descriptors.add(descriptor)


def note_start(pid: int) -> None:
    """A kept child has started a program."""
    _started.append(pid)


def command(pid: int) -> str:
    """What a process runs. One in the middle of its exec has no command for a moment."""
    folder = Path(f"/proc/{pid}")
    while not (words := (folder / "cmdline").read_bytes()):
        if (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"Z":
            return "(nobody has waited for it)"
        time.sleep(PAUSE_S)
    return b" ".join(words.split(b"\0")).decode(errors="replace").strip()


def held() -> Held:
    descriptors: set[tuple[int, str]] = set()
    threads: set[tuple[int, str]] = set()
    children: Counter[str] = Counter()
    for path in Path("/proc/self/fd").iterdir():
        # The one that lists them is gone by now.
        with contextlib.suppress(OSError):
            # pytest puts files of its own in the place of these, and takes them away.
            if int(path.name) > 2 and int(path.name) not in _kept_descriptors:
                descriptors.add((int(path.name), str(path.readlink())))
    for path in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            threads.add((int(path.name), (path / "comm").read_text().strip()))
            own = set(children_of(os.getpid(), int(path.name)))
            children.update(map(command, own - _kept_children))
    for pid in _kept_children:
        with contextlib.suppress(OSError):
            children.update(map(command, children_of(pid)))
    return Held(frozenset(descriptors), frozenset(threads), children)


def waited_for() -> tuple[int, int, int]:
    """Counts of which one grows with every child that has ended: page faults, switches, and what
    kept children have started."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_minflt + used.ru_majflt, used.ru_nvcsw + used.ru_nivcsw, len(_started)


@dataclass
class Watch:
    """One test's: what there was before it, and the tasks that its event loops ended with."""

    mark: str = field(default_factory=lambda: uuid.uuid4().hex)
    before: Held = field(default_factory=held)
    waited_before: tuple[int, int, int] = field(default_factory=waited_for)
    tasks: list[str] = field(default_factory=list)

    def programs(self) -> list[leftovers.Leftover]:
        """A daemon that others share too has this test's mark once the test has restarted it."""
        # Every program that a test starts is its child, or comes from a child that has ended.
        # Most tests have none, and a look goes through all processes of the machine.
        if waited_for() == self.waited_before and not held().children:
            return []
        found = leftovers.find(MARK, self.mark)
        return [program for program in found if program.command not in self.before.children]

    def left(self) -> list[str]:
        """A line for each thing that is there now and was not before."""
        now = held()
        lines = [f"the asyncio task {task}" for task in self.tasks]
        new = now.descriptors - self.before.descriptors
        lines += [f"the descriptor {number} of {target}" for number, target in sorted(new)]
        threads = now.threads - self.before.threads
        lines += [f"the thread {number} ({name})" for number, name in sorted(threads)]
        lines += [f"the child {child}" for child in now.children - self.before.children]
        return lines + [f"the program {p.pid}: {p.command}" for p in self.programs()]

    def _are_ending(self) -> bool:
        """Threads and processes take a moment; nothing else is worth waiting for."""
        now = held()
        threads = now.threads - self.before.threads
        return bool(threads or now.children - self.before.children or self.programs())

    def end(self) -> list[str]:
        """Wait until nothing is left; what is left then, of which the programs are killed."""
        if not self.left():
            return []
        # What only a circle of references holds is open until Python looks for circles.
        gc.collect()
        end = time.monotonic() + ENDING_S
        while self._are_ending() and time.monotonic() < end:
            time.sleep(PAUSE_S)
        # Only now: what is seen before the last of them has ended may be of one that ends.
        left = self.left()
        for program in self.programs():
            with contextlib.suppress(ProcessLookupError):
                os.kill(program.pid, signal.SIGKILL)
        return left


def pending(loop: asyncio.AbstractEventLoop) -> list[str]:
    """The tasks that a loop has and nobody has cancelled. Python 3.9 does not say who has been."""
    tasks = asyncio.all_tasks(loop)
    return sorted(repr(t.get_coro()) for t in tasks if not getattr(t, "cancelling", int)())


@contextlib.contextmanager
def watched() -> Iterator[Watch]:
    """Everything that is started in here has a mark, and each loop says what it ends with."""
    watch = Watch()

    def closing(loop: asyncio.AbstractEventLoop) -> None:
        # asyncio.run cancels what is left, and says nothing.
        watch.tasks += pending(loop)
        CANCEL_LEFT(loop)

    outer = os.environ.get(MARK)
    os.environ[MARK] = watch.mark
    asyncio.runners._cancel_all_tasks = closing  # type: ignore[attr-defined] # noqa: SLF001
    try:
        yield watch
    finally:
        asyncio.runners._cancel_all_tasks = CANCEL_LEFT  # type: ignore[attr-defined] # noqa: SLF001
        os.environ.pop(MARK, None)
        if outer is not None:
            os.environ[MARK] = outer
