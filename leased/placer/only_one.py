"""One placer at a time uses a state folder: two would put each other's jobs off, and each would
overwrite what the other remembers."""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path

from leased.base.errors import Refused

NAME = "lock"


@contextlib.contextmanager
def only_one(state: Path) -> Iterator[None]:
    """Refused: another one uses it. OSError: it cannot be used."""
    with (state / NAME).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                f"another gpu-lease-placer uses {state}", "end it, or let this one be"
            ) from None
        yield
