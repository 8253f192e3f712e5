"""One program of a kind at a time uses a directory: two would undo what the other does, and each
would overwrite what the other remembers."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from leased.base.errors import Refused

# Whoever may open the file may lock it.
MODE = 0o600
# A program that has been killed leaves the lock to children of its that have not executed theirs
# yet, so one that is started at once may find it taken for a moment.
WAITS_S, AGAIN_S = 1.0, 0.02


def _open(path: Path) -> int | None:
    """None: the disk is read-only and has no such file, so nobody changes what is there."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE)
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
    try:
        return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None


def _taken(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextlib.contextmanager
def only_one(program: str, *folders: Path) -> Iterator[None]:
    """The directories are this program's meanwhile. Refused: another one uses one of them, and does
    so for WAITS_S. OSError: one cannot be used."""
    until = time.monotonic() + WAITS_S
    with contextlib.ExitStack() as held:
        for folder in dict.fromkeys(folder.resolve() for folder in folders):
            file = _open(folder / f"{program}.lock")
            if file is None:
                continue
            held.callback(os.close, file)
            while not _taken(file):
                if time.monotonic() > until:
                    raise Refused(f"another {program} uses {folder}", "end it, or let this one be")
                time.sleep(AGAIN_S)
        yield
