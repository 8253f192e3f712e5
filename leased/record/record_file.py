"""The two files of a record, written by a thread of their own: nobody waits for a slow disk."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue

from leased.record import place

MOST_QUEUED = 8 << 20  # bytes that the disk may be behind
LAST_S = 2.0  # at the end, for what is still to be written


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it. OSError: not all of it could be."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class RecordFile:
    """A record that begins now. What was there before is the older file from now on.

    on_fault: called by the thread, at most once; nothing more is written after that.
    """

    def __init__(
        self,
        path: Path,
        header: bytes,
        on_fault: Callable[[str], None],
        before: RecordFile | None = None,
    ):
        """before: another one that was told to end, and may still have to write."""
        self.path = path
        self._before = before
        self.on_fault = on_fault
        self.over = False  # by a fault
        self.size = 0  # of the newer file, when all is written
        self._descriptor = -1
        self._whole = 0  # bytes of it in whole lines
        self._given = self._done = 0  # bytes
        # Lines, and whether they begin another file; None: the end.
        self._queue: SimpleQueue[tuple[bytes, bool] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="record", daemon=True)
        self._thread.start()
        self.begin(header)

    # -- called by the daemon -----------------------------------------------------------

    def begin(self, header: bytes) -> None:
        """Go on in a new file."""
        self.size = 0
        self._put(header, True)

    def write(self, lines: bytes) -> None:
        self._put(lines, False)

    def is_behind(self) -> bool:
        """More is to be written than is worth the memory."""
        return self._given - self._done > MOST_QUEUED

    def end(self, lines: bytes, wait_s: float = 0.0) -> None:
        """These are the last lines. wait_s: how long they may take before this returns."""
        self.write(lines)
        self._queue.put(None)
        if wait_s:
            self.wait(wait_s)

    def wait(self, most_s: float | None = None) -> None:
        """Until all is written, for so long at most."""
        self._thread.join(most_s)

    def _put(self, lines: bytes, begins: bool) -> None:
        self.size += len(lines)
        self._given += len(lines)
        self._queue.put((lines, begins))

    # -- the thread ---------------------------------------------------------------------

    def _run(self) -> None:
        if self._before is not None:
            self._before.wait()
            self._before = None
        while (item := self._queue.get()) is not None:
            lines, begins = item
            if not self.over:
                self._try(lines, begins)
            self._done += len(lines)
        self._close()

    def _try(self, lines: bytes, begins: bool) -> None:
        try:
            if begins:
                self._open()
            self._write(lines)
        except OSError as fault:
            self.over = True
            self._close()
            self.on_fault(fault.strerror or str(fault))

    def _open(self) -> None:
        self._close()
        for file in (self.path, place.before(self.path)):
            if not place.is_free(file):
                raise OSError(errno.EEXIST, f"{file} is not a record")
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(place.before(self.path))
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        self._descriptor, self._whole = os.open(self.path, flags, 0o600), 0

    def _write(self, lines: bytes) -> None:
        write_all(self._descriptor, lines)
        self._whole += len(lines)

    def _close(self) -> None:
        if self._descriptor < 0:
            return
        with contextlib.suppress(OSError):
            if self.over:  # what is left of a line that did not fit
                os.ftruncate(self._descriptor, self._whole)
        with contextlib.suppress(OSError):
            os.close(self._descriptor)
        self._descriptor = -1
