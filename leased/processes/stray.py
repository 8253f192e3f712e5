"""Strays as plain data: processes that use a leased GPU without a lease, and what they lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Optional, Union

from leased.processes.identity import ProcessId, Step


@dataclass(frozen=True)
class Process:
    """What the kernel says of a process.

    start: in clock ticks since the boot. step: None if it is of no Slurm job. interposed: it has
    the interposer.
    """

    pid: int
    start: int
    uid: int
    command: str
    step: Step | None
    interposed: bool

    @property
    def id(self) -> ProcessId:
        return ProcessId(self.pid, self.start)


@dataclass(frozen=True)
class Policy:
    """What the site does about strays.

    action: count, warn (also name it) or end (also end its step, after grace_ns; never the extern
    step). allow: uids whose processes are named, and held against no job.
    """

    action: str = "warn"
    grace_ns: int = 0
    allow: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Found:
    """A stray has been counted: for its job, or for its user where no job answers for it.

    bytes: of its memory on the device. blamed: a job answers for it, so it is in that job's usage.
    named: people are to hear of it. first: it is the first of its job or user. last: further ones
    of them are only counted. brief: it has ended already.
    """

    process: Process
    device: str
    bytes: int
    blamed: bool
    named: bool
    first: bool
    last: bool
    brief: bool = False


@dataclass(frozen=True)
class End:
    """The step of this process is to be ended, through Slurm."""

    step: Step
    process: Process


Action = Union[Found, End]
# The process that has a pid now; None: it has ended, or is not the one that NVML shows.
Who = Callable[[int], Optional[Process]]
