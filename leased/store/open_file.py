"""The database's file while SQLite has it open."""

from __future__ import annotations

import os
from pathlib import Path

HEAD = b"SQLite format 3\0"
LOG_HEADS = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")


class OpenFile:
    """The file as it was when it was opened. SQLite does not notice when its file is removed,
    replaced or cut, and goes on writing what nobody will ever read."""

    def __init__(self, path: Path):
        self.path = path
        self.log_path = path.with_name(path.name + "-wal")
        self.has_log = False
        # This stays open, since closing it would give up SQLite's own locks on the file.
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def spoilt(self) -> str:
        """What has happened to the file; "": nothing. OSError: it cannot be found out."""
        try:
            if not os.path.samestat(self.path.stat(), os.fstat(self.fd)):
                return "it was replaced while it was open"
        except FileNotFoundError:
            return "it was removed while it was open"
        if os.pread(self.fd, len(HEAD), 0) != HEAD:
            return "it was overwritten while it was open"
        try:
            with self.log_path.open("rb") as file:
                begun = file.read(4) in LOG_HEADS
        except FileNotFoundError:
            begun = False
        if self.has_log and not begun:
            return "its log was removed or cut while it was open"
        self.has_log = begun
        return ""

    def close(self) -> None:
        os.close(self.fd)
