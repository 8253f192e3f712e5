"""What the driver still has to do to a job's processes, so that all are on the new GPU, or back on
the old one.

Pure. The driver takes one step with one process at a time: it locks it, checkpoints it, restores
it, and unlocks it. All processes take a step before any takes the next one, so none works on one
GPU while another one has left it. Whatever fails turns all of them back.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

RUNNING, LOCKED, CHECKPOINTED = "running", "locked", "checkpointed"
LOCK, CHECKPOINT, RESTORE, UNLOCK = "lock", "checkpoint", "restore", "unlock"
ORDER = (LOCK, CHECKPOINT, RESTORE, UNLOCK)
TRIES = 3  # of one step on the way back, before a process is given up


@dataclass
class Process:
    """state: the driver's word. away: it is on the new GPU, or its checkpoint is of there."""

    state: str = RUNNING
    away: bool = False


class Step(NamedTuple):
    """crosses: a restore that exchanges the two GPUs."""

    pid: int
    what: str
    crosses: bool = False


@dataclass
class Plan:
    """processes: by pid. to_new: where they shall be. why: what turned them back; "": nothing.
    lost: processes that the driver does not bring back."""

    processes: dict[int, Process]
    to_new: bool = True
    why: str = ""
    lost: set[int] = field(default_factory=set)
    tries: dict[tuple[int, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, pids: Iterable[int]) -> Plan:
        return cls({pid: Process() for pid in pids})

    def next(self) -> Step | None:
        """The next step; None: all are where they shall be, or lost."""
        steps = [
            step
            for pid, process in self.processes.items()
            if pid not in self.lost and (step := self._step(pid, process)) is not None
        ]
        return min(steps, key=lambda step: ORDER.index(step.what), default=None)

    def _step(self, pid: int, process: Process) -> Step | None:
        there = process.away == self.to_new
        if process.state == CHECKPOINTED:
            return Step(pid, RESTORE, crosses=not there)
        if process.state == LOCKED:
            return Step(pid, UNLOCK if there else CHECKPOINT)
        return None if there else Step(pid, LOCK)

    def done(self, step: Step) -> None:
        """The driver has taken this step."""
        process = self.processes[step.pid]
        process.state = {CHECKPOINT: CHECKPOINTED, UNLOCK: RUNNING}.get(step.what, LOCKED)
        process.away ^= step.crosses

    def failed(self, step: Step, why: str) -> None:
        """It has not: all go back. On the way back it is tried again, a few times."""
        if self.to_new:
            self.turn_back(why)
            return
        key = step.pid, step.what
        self.tries[key] = self.tries.get(key, 0) + 1
        if self.tries[key] >= TRIES:
            self.lost.add(step.pid)

    def turn_back(self, why: str) -> None:
        """All go back to the old GPU."""
        self.to_new, self.why = False, self.why or why

    def ended(self, pid: int) -> None:
        """The process has ended."""
        self.processes.pop(pid, None)

    @property
    def has_moved(self) -> bool:
        """Whether all are on the new GPU and work."""
        return self.to_new and bool(self.processes) and self.next() is None
