"""Keys of a terminal, one at a time, without waiting for a line."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator


@contextlib.contextmanager
def terminal() -> Iterator[Keys | None]:
    """Standard input as keys; afterwards its mode is restored. None: it is not a terminal."""
    if not sys.stdin.isatty():
        yield None
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setcbreak(descriptor)
        yield Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class Keys:
    """The keys typed at a terminal, without waiting for the end of a line."""

    def __init__(self, descriptor: int):
        self.descriptor = descriptor
        self.ended = False

    def before(self, due: float) -> Iterator[str]:
        """The keys that are pressed until that time (of time.monotonic), as they come."""
        while not self.ended:
            left = due - time.monotonic()
            if left <= 0:
                return
            if select.select([self.descriptor], [], [], left)[0]:
                typed = os.read(self.descriptor, 64)
                self.ended = not typed
                yield from typed.decode(errors="replace")
        time.sleep(max(0.0, due - time.monotonic()))
