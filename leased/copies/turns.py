"""Jobs for which memory is made take turns, a slice each.

The job that has had least is next. One that comes has had as much as whoever began last, so that
nobody saves turns up, and one that goes and comes back has had what it had. So whoever wants little
waits for a slice of each other job, however much those take and give back. Of the threads at work
each job has an even part at most.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

SLICE = 16 << 20  # bytes; some milliseconds

# Within it a slice of so many bytes is made; it begins when it is the job's turn.
Slice = Callable[[int], AbstractContextManager[None]]


class Turns:
    """at_once: slices. had: by job, the bytes of its slices. begun: what the job that began last
    had had before. makes, waiting, working: by job, the pieces of memory that are being made, the
    threads that wait for a turn, and those that have one. stopped: nobody has a turn for now."""

    def __init__(self, at_once: int):
        self.at_once = at_once
        self.stopped = False
        self.changed = threading.Condition()
        self.had: dict[str, int] = {}
        self.begun = 0
        self.makes: Counter[str] = Counter()
        self.waiting: Counter[str] = Counter()
        self.working: Counter[str] = Counter()

    @contextlib.contextmanager
    def of(self, job: str) -> Iterator[Slice]:
        """A piece of memory of the job is made within."""
        with self.changed:
            self.makes[job] += 1
            self.had[job] = max(self.had.get(job, 0), self.begun)
        try:
            yield lambda size: self._slice(job, size)
        finally:
            with self.changed:
                self.makes -= Counter({job: 1})
                # The others are at where they would begin.
                later = {j: n for j, n in self.had.items() if j in self.makes or n > self.begun}
                self.had = later if self.makes else {}
                self.changed.notify_all()

    @contextlib.contextmanager
    def _slice(self, job: str, size: int) -> Iterator[None]:
        with self.changed:
            self.waiting[job] += 1
            self.changed.wait_for(lambda: self.next() == job)
            self.waiting -= Counter({job: 1})
            self.working[job] += 1
            self.begun = self.had[job]
            self.had[job] += size
            self.changed.notify_all()
        try:
            yield
        finally:
            with self.changed:
                self.working -= Counter({job: 1})
                self.changed.notify_all()

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """No slice is made within. For one thread."""
        with self.changed:
            self.stopped = True
            self.changed.wait_for(lambda: not self.working)
        try:
            yield
        finally:
            with self.changed:
                self.stopped = False
                self.changed.notify_all()

    def next(self) -> str | None:
        """The job whose turn it is; None: nobody's."""
        if self.stopped or sum(self.working.values()) >= self.at_once:
            return None
        part = max(1, self.at_once // max(1, len(self.makes)))
        may = [job for job in self.waiting if self.working[job] < part]
        return min(may, key=self.had.__getitem__, default=None)
