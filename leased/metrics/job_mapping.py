"""Files that tell dcgm-exporter which jobs have which GPU, for its --hpc-job-mapping-dir.

It reads a file for each GPU, whose name is NVML's number of it and whose lines are the jobs, and
passes over names that are no number. A file is there as long as a job is.

Whoever may write to the directory says to dcgm-exporter which jobs have which GPU. So nothing is
written to one to which others than root and this process's user may.
"""

from __future__ import annotations

import errno
import json
import logging
import stat
from pathlib import Path

from leased.api.answers import Status, jobs_on
from leased.base import owners, text_file

log = logging.getLogger("gpu-leased-metrics")

OURS = ".gpu-lease.json"  # what we have written, for the one after us
MODE = 0o644
MOST_BYTES = 1 << 20  # of a file; those that are ours are far shorter


def wanted(status: Status) -> dict[str, str]:
    """The files for a status: their content by their names."""
    found = {}
    for device in status["devices"]:
        jobs = [t["job_id"] for t in jobs_on(device, status)]
        if jobs:
            name = str(device.get("number", device["index"]))
            found[name] = "".join(f"{job}\n" for job in sorted(jobs))
    return found


class JobMapping:
    """Keeps the files of a directory, which other programs of root's may write to as well: what is
    there and is not what we wrote is replaced while jobs of ours are on that GPU, and else left
    alone."""

    def __init__(self, directory: Path):
        self.directory = directory
        self._written: dict[str, str] | None = None  # None: not read yet
        self._fault = ""

    def follow(self, status: Status) -> None:
        """Write what has changed. A fault is said once, and tried again the next time."""
        self._set(wanted(status))

    def clear(self) -> None:
        """Remove the files, since nobody else would do so."""
        self._set({})

    def _set(self, files: dict[str, str]) -> None:
        try:
            self._bring_about(files)
        except OSError as fault:
            words = f"metrics.job_mapping_dir: {fault.filename}: {fault.strerror}"
            if words != self._fault:
                log.warning("%s", words)
            self._fault = words
        else:
            self._fault = ""

    def _bring_about(self, files: dict[str, str]) -> None:
        if self._written is None and not self.directory.exists():
            self.directory.mkdir(parents=True)
            self.directory.chmod(0o755)  # whatever our umask is: others read it
        self._check()
        if self._written is None:
            self._written = self._left()
        for name, text in files.items():
            if self._now(name) != text:
                self._note(self._written | {name: text})
                text_file.replace(self.directory / name, text, MODE)
        for name in self._written.keys() - files.keys():
            if self._now(name) == self._written[name]:
                (self.directory / name).unlink(missing_ok=True)
        self._note(files)

    def _check(self) -> None:
        """OSError: the directory is none, or others may write to it."""
        found = self.directory.stat()
        if not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is not a directory", str(self.directory))
        if owners.others(found, owners.TO_WRITE):
            raise PermissionError(errno.EPERM, "others may write to it", str(self.directory))

    def _now(self, name: str) -> str | None:
        """The content of a file; None: there is none, or what is there cannot be of ours."""
        try:
            found = text_file.read(self.directory / name, MOST_BYTES, follow=False)
        except OSError:
            return None
        return found.decode(errors="replace")

    # -- what was written ---------------------------------------------------------------

    def _left(self) -> dict[str, str]:
        """What an earlier process has written and could not remove."""
        try:
            found = json.loads(self._now(OURS) or "")
            return {str(name): str(text) for name, text in found.items() if name.isdecimal()}
        except (ValueError, AttributeError, RecursionError):
            return {}

    def _note(self, files: dict[str, str]) -> None:
        """Note which files are ours: before a file is written, and after one is removed."""
        if files == self._written:
            return
        if files:
            text_file.replace(self.directory / OURS, json.dumps(files), MODE)
        else:
            (self.directory / OURS).unlink(missing_ok=True)
        self._written = dict(files)
