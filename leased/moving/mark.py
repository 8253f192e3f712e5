"""The file that says which processes are being moved, from before the first step until after the
last: a daemon that ends meanwhile leaves it to the next one, which brings them back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from leased.base import text_file
from leased.processes.identity import ProcessId

NAME = "moving"


@dataclass(frozen=True)
class Mark:
    """Processes of a job that are between two GPUs, by their UUIDs. job_id: 0 if an older release
    has written it. asker: the process that has the driver take the steps, which may outlive the
    daemon by one of them; None: not known."""

    job_id: int
    old: str
    new: str
    processes: tuple[ProcessId, ...]
    asker: ProcessId | None = None


class MarkFile:
    """In a directory that only root can write to."""

    def __init__(self, directory: Path):
        self._path = directory / NAME

    def write(self, mark: Mark) -> None:
        """OSError: it cannot be written, so nothing may be begun."""
        told = {
            "job_id": mark.job_id,
            "old": mark.old,
            "new": mark.new,
            "processes": [[p.pid, p.start] for p in mark.processes],
            "asker": [mark.asker.pid, mark.asker.start] if mark.asker else None,
        }
        text_file.replace(self._path, json.dumps(told), sync=True)

    def read(self) -> Mark | None:
        """None: no move was under way."""
        try:
            told = json.loads(self._path.read_text())
            asker = told.get("asker")
            return Mark(
                int(told.get("job_id", 0)),
                str(told["old"]),
                str(told["new"]),
                tuple(ProcessId(int(pid), int(start)) for pid, start in told["processes"]),
                ProcessId(int(asker[0]), int(asker[1])) if asker else None,
            )
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def remove(self) -> None:
        self._path.unlink(missing_ok=True)
