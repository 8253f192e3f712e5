"""What has been promised to jobs on several nodes: one byte a job, in a file beside the sockets.

A daemon notes a promise before it tells others of it, so that the one after it keeps it. That is
needed for as long as the jobs run, so like them it need not survive a boot, and no disk is waited
for. The byte is there from the job's first step on: to change it needs no room.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

log = logging.getLogger("gpu-leased")

PROMISED, NOTHING = b"+", b"-"


class Promises:
    """The files in `folder`, which is made when it is needed. A job whose file is missing may have
    been promised something, so where one cannot be made or written nothing is lost but time."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.files: dict[int, int] = {}  # by job

    def open(self, job_id: int, promised: bool) -> None:
        """A job begins here, or was here before. promised: whether anything is promised to it."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.files[job_id] = os.open(self._path(job_id), flags, 0o600)
        except OSError as fault:
            self._failed(job_id, fault)
        self.note(job_id, promised)

    def note(self, job_id: int, promised: bool) -> None:
        """Its GPUs are promised to the job from now on, or no more."""
        if job_id in self.files:
            try:
                os.pwrite(self.files[job_id], PROMISED if promised else NOTHING, 0)
            except OSError as fault:
                self._failed(job_id, fault)

    def is_promised(self, job_id: int) -> bool:
        """Whether a daemon before this one has promised them. Where that is not known, it may."""
        try:
            return self._path(job_id).read_bytes() != NOTHING
        except OSError:
            return True

    def close(self, job_id: int) -> None:
        """The job has ended here."""
        self.close_file(job_id)
        with contextlib.suppress(OSError):
            self._path(job_id).unlink()

    def _failed(self, job_id: int, fault: OSError) -> None:
        log.warning(
            "%s cannot be written (%s): the next daemon takes it that the job may run",
            *(self._path(job_id), fault),
        )
        self.close(job_id)

    def close_file(self, job_id: int) -> None:
        """The file stays as it is."""
        fd = self.files.pop(job_id, None)
        if fd is not None:
            os.close(fd)

    def _path(self, job_id: int) -> Path:
        return self.folder / str(job_id)
