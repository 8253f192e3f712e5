"""Where a checkpoint is: DIR/complete is the last one that succeeded, DIR/partial one under way or
cut off. A checkpoint becomes complete by one rename, when all of it is on the disk."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

from leased.base import text_file
from leased.base.errors import Refused
from leased.base.words import size as in_words
from leased.saving.bytes_file import Damaged

FORMAT = 1
MANIFEST = "checkpoint.json"
SPARE = 1.05  # of what is to be written, for what criu adds


class Directory:
    """DIR of the job's user."""

    def __init__(self, path: Path):
        self.path = path
        self.partial, self.complete = path / "partial", path / "complete"
        self._former = path / "former"

    def make(self, *, to_write: bool = False) -> None:
        """to_write: with what a write needs. Refused: it cannot be made, or is not this user's
        alone."""
        try:
            if not self.path.is_absolute():
                raise Refused(f"{self.path} is not an absolute path")
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.check()
            if to_write:
                self.partial.mkdir(mode=0o700, exist_ok=True)
                shutil.rmtree(self.partial / "images", ignore_errors=True)
        except OSError as fault:
            raise Refused(f"{fault.filename}: {fault.strerror}") from None

    def check(self) -> None:
        """Refused: others own it, or may write to it: what they put there would run as ours."""
        found = self.path.stat()
        if found.st_uid != os.geteuid():
            raise Refused(f"{self.path} is not yours", "name a directory of your own")
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise Refused(f"others may write to {self.path}", f"chmod go-w {self.path}")

    def check_room(self, size: int) -> None:
        """Refused: the disk has no room for so many bytes."""
        disk = os.statvfs(self.path)
        free = disk.f_bavail * disk.f_frsize
        if size * SPARE > free:
            raise Refused(
                f"{self.path} has room for {in_words(free)}, and the checkpoint may take "
                f"{in_words(int(size * SPARE))}"
            )

    def finish(self, manifest: dict[str, Any]) -> None:
        """What is in partial is complete from now on. OSError: it is not, and what was complete
        before is so still."""
        told = json.dumps({"format": FORMAT, **manifest}, indent=1)
        text_file.replace(self.partial / MANIFEST, told, sync=True)
        for path in (*self.partial.rglob("*"), self.partial):
            _sync(path)
        self._settle()
        shutil.rmtree(self._former, ignore_errors=True)
        if self.complete.exists():
            self.complete.rename(self._former)
        try:
            self.partial.rename(self.complete)
        except OSError:
            self._settle()
            raise
        _sync(self.path)
        shutil.rmtree(self._former, ignore_errors=True)

    def _settle(self) -> None:
        """What was cut off between two renames is undone."""
        if not self.complete.exists() and self._former.exists():
            self._former.rename(self.complete)

    def latest(self) -> Path:
        """Where the files of a save that is under way are."""
        return self.partial if self.partial.exists() else self.complete

    def manifest(self) -> dict[str, Any] | None:
        """Of the checkpoint that is complete; None: there is none. Damaged: it makes no sense.
        Refused: see check()."""
        self._settle()
        path = self.complete / MANIFEST
        if not path.exists():
            return None
        self.check()
        try:
            told = json.loads(path.read_bytes())
            if told["format"] != FORMAT:
                raise Damaged(f"{path} is of another release")
        except (OSError, ValueError, KeyError, TypeError) as fault:
            raise Damaged(f"{path} cannot be read: {fault}") from None
        return dict(told)

    def remove(self) -> None:
        """The program has ended: nothing of it is to be restored."""
        for place in (self.complete, self.partial, self._former):
            shutil.rmtree(place, ignore_errors=True)


def _sync(path: Path) -> None:
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        os.fsync(file)
    finally:
        os.close(file)
