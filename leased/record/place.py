"""Where a record may be kept: no file that is something else is ever moved or written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from leased.base.errors import Refused
from leased.record.lines import MARK


def before(path: Path) -> Path:
    """The older one of a record's two files."""
    return path.with_name(path.name + ".1")


def check(path: Path, what: str) -> None:
    """Refused: there is no directory for it, or something else is there. what: the key."""
    if not path.name:
        raise Refused(f"{what}: {path} is not a file", "name a file in a directory")
    if not path.parent.is_dir():
        raise Refused(f"{what}: {path.parent} is not a directory", "make it first")
    for file in (path, before(path)):
        if not is_free(file):
            raise Refused(
                f"{what}: {file} is there and is not a record", "name another file, or remove it"
            )


def is_free(file: Path) -> bool:
    """Nothing is there, or an empty file, or a record. OSError: it cannot be told."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # a link, a socket
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        begins = os.read(descriptor, len(MARK))
    finally:
        os.close(descriptor)
    return begins == MARK[: len(begins)]
