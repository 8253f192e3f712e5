"""One program of a kind at a time uses a directory: two would undo what the other does, and each
would overwrite what the other remembers."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from leased.base.errors import Refused

# Whoever may open the file may lock it.
MODE = 0o600


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


@contextlib.contextmanager
def only_one(program: str, *folders: Path) -> Iterator[None]:
    """The directories are this program's meanwhile. Refused: another one uses one of them. OSError:
    one cannot be used."""
    with contextlib.ExitStack() as held:
        for folder in dict.fromkeys(folder.resolve() for folder in folders):
            file = _open(folder / f"{program}.lock")
            if file is None:
                continue
            held.callback(os.close, file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(
                    f"another {program} uses {folder}", "end it, or let this one be"
                ) from None
        yield
