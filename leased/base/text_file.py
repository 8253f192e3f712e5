"""Text files: reading one that an administrator wrote, whatever may lie in its place, and replacing
one of ours."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path


def read(path: Path, most: int, *, follow: bool = True) -> bytes:
    """The content of a regular file of at most `most` bytes. OSError: why it cannot be read, with
    its path. follow: also if its name is a link."""
    try:
        # A FIFO must not make us wait for somebody who writes, nor a terminal become ours.
        flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        file = os.open(path, flags | (0 if follow else os.O_NOFOLLOW))
    except ValueError as fault:  # a NUL in its name
        raise OSError(errno.EINVAL, str(fault), str(path)) from None
    try:
        mode = os.fstat(file).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory", str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is not a regular file", str(path))
        with os.fdopen(os.dup(file), "rb") as opened:
            data = opened.read(most + 1)
    finally:
        os.close(file)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes", str(path))
    return data


def replace(path: Path, text: str, mode: int = 0o600, *, sync: bool = False) -> None:
    """Write a file at once: a reader finds all of the old one or all of the new one. OSError: the
    old one is still there. sync: it is on the disk when this returns."""
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(new, flags, 0o600), "w") as file:
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        new.rename(path)
    except OSError:
        new.unlink(missing_ok=True)
        raise
