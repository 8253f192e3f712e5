"""The registration of each open tenant, in a file of its own beside the daemon's sockets.

The database may be lost or unusable while jobs run. Then nobody would know that their processes
belong to jobs that share, and these processes would be refused and fail. So each job's
registration is kept here as well, in the runtime directory, which mostly lies on another file
system than the state and, like the jobs, does not survive a boot. Only a daemon whose database
lacks a job reads its file. Usage, settings and parking are not kept here.

A file is believed as much as the database is: it and its directory must belong to root or to the
daemon's user, and nobody else may open them.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from leased.base import owners, text_file
from leased.processes import procfs
from leased.processes.identity import ProcessId
from leased.store import columns, reading, writing
from leased.store.records import TenantRecord

log = logging.getLogger("gpu-leased")

VERSION = 1
LONGEST = 1 << 20  # bytes of a file
SUFFIX = ".json"


@dataclass(frozen=True)
class Registration:
    """A job as it was registered. record: without usage. stepds: its known slurmstepds."""

    record: TenantRecord
    stepds: tuple[ProcessId, ...] = ()


class Registrations:
    """The files in `folder`, which is made when it is needed. Nothing here raises: a file that
    cannot be written or believed is named in the log, and other jobs are not affected."""

    def __init__(self, folder: Path):
        self.folder = folder
        self._fault = ""  # said last

    def jobs(self) -> set[int]:
        """The jobs that have a file, whatever is in it."""
        try:
            names = [path.stem for path in self.folder.iterdir() if path.suffix == SUFFIX]
        except OSError:
            return set()
        return {int(name) for name in names if name.isascii() and name.isdigit()}

    def put(self, registration: Registration) -> None:
        """Write the file of an open tenant, or replace it."""
        path = self._path(registration.record.job_id)
        try:
            self._make_folder()
            text_file.replace(path, json.dumps(_said(registration)))
        except (OSError, ValueError) as fault:
            self._failed(f"{path} cannot be written ({fault})")
            return
        self._fault = ""

    def remove(self, job_id: int) -> None:
        """The job has ended on this node."""
        try:
            self._path(job_id).unlink(missing_ok=True)
        except OSError as fault:
            log.warning("%s cannot be removed (%s)", self._path(job_id), fault)

    def read(self, job_id: int) -> Registration | None:
        """What the file of a job says. None: there is none, it is of another boot, or it cannot
        be believed, which the log says."""
        path = self._path(job_id)
        try:
            _check_owner(self.folder.lstat(), str(self.folder), stat.S_ISDIR)
            said = json.loads(_content(path))
            if not isinstance(said, dict):
                raise ValueError("it is not an object")
            if said.get("boot") != procfs.boot_id():
                return None
            found = _parsed(said)
            if found.record.job_id != job_id:
                raise ValueError(f"it is of job {found.record.job_id}")
        except FileNotFoundError:
            return None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as fault:
            log.error(
                "%s cannot be trusted (%s): job %d is not taken over from it, and its processes "
                "are refused; other jobs are not affected",
                *(path, fault, job_id),
            )
            return None
        return found

    def _path(self, job_id: int) -> Path:
        return self.folder / f"{job_id}{SUFFIX}"

    def _make_folder(self) -> None:
        self.folder.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            self.folder.mkdir(mode=0o700)
        _check_owner(self.folder.lstat(), str(self.folder), stat.S_ISDIR)

    def _failed(self, words: str) -> None:
        if words != self._fault:
            log.warning(
                "%s: if usage.db is lost while the job runs, its processes will be refused", words
            )
        self._fault = words


def _check_owner(found: os.stat_result, name: str, kind: Any) -> None:
    """ValueError: the file is of another kind, or others may change or read it."""
    if not kind(found.st_mode):
        raise ValueError(f"{name} is of another kind")
    if whose := owners.others(found):
        raise ValueError(f"{name} is {whose}; remove it")


def _content(path: Path) -> str:
    """What a file says. ValueError: others may change or read it, or it is too long."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(fd, "rb") as file:
        _check_owner(os.fstat(fd), "it", stat.S_ISREG)
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise ValueError(f"it is longer than {LONGEST} bytes")
    return content.decode()


def _said(registration: Registration) -> Mapping[str, object]:
    return {
        "gpu_lease_job": VERSION,
        "boot": procfs.boot_id(),
        "job_id": registration.record.job_id,
        **writing.tenant_row(registration.record),
        "stepds": [asdict(process) for process in registration.stepds],
    }


def _parsed(said: Mapping[str, Any]) -> Registration:
    """ValueError, TypeError, KeyError: the file is damaged. What later releases add is ignored."""
    if columns.whole(said, "gpu_lease_job", 0, reading.MOST) != VERSION:
        raise ValueError(f"its version is {said['gpu_lease_job']}, not {VERSION}")
    record = reading.record_of(said, {}, reading.totals_of(columns.parsed(said, "totals")))
    stepds: Iterable[Any] = said["stepds"]
    job = {"job_id": record.job_id}
    return Registration(record, tuple(reading.stepd_of({**stepd, **job})[0] for stepd in stepds))
