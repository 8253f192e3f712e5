"""The file that says which processes are being moved, from before the first step until after the
last: a daemon that ends meanwhile leaves it to the next one, which brings them back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from leased.base import text_file
from leased.processes.identity import ProcessId

NAME = "moving"


@dataclass(frozen=True)
class Mark:
    """Processes of a job that are between two GPUs, by their UUIDs. job_id: 0 if an older release
    has written it."""

    job_id: int
    old: str
    new: str
    processes: tuple[ProcessId, ...]


class MarkFile:
    """In a directory that only root can write to."""

    def __init__(self, directory: Path):
        self._path = directory / NAME

    def write(self, job_id: int, old: str, new: str, processes: Iterable[ProcessId]) -> None:
        """OSError: it cannot be written, so nothing may be begun."""
        pids = [[p.pid, p.start] for p in processes]
        told = {"job_id": job_id, "old": old, "new": new, "processes": pids}
        text_file.replace(self._path, json.dumps(told), sync=True)

    def read(self) -> Mark | None:
        """None: no move was under way."""
        try:
            told = json.loads(self._path.read_text())
            return Mark(
                int(told.get("job_id", 0)),
                str(told["old"]),
                str(told["new"]),
                tuple(ProcessId(int(pid), int(start)) for pid, start in told["processes"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
