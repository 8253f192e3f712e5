"""Strays as plain data: processes that use a leased GPU without a lease, and what they lead to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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


NAMED_PER_JOB = 8  # further strays of the job, or user, are only counted
JOBS_COUNTED = 1024  # then the job that was counted first is forgotten


def answerable_job(process: Process, policy: Policy) -> int | None:
    """The job that answers for a stray; None: no job does, and the stray is only named."""
    if process.step is None or process.uid in policy.allow:
        return None
    return process.step.job


@dataclass
class StrayCounts:
    """How many strays each job, or user, has had. total: of all. of_jobs: by job, those it answers
    for. of_users: by uid, the others."""

    total: int = 0
    of_jobs: dict[int, int] = field(default_factory=dict)
    of_users: dict[int, int] = field(default_factory=dict)

    def count(
        self, process: Process, device: str, size: int, policy: Policy, *, brief: bool
    ) -> Found:
        """Count one more stray. size: bytes that it has on the device."""
        job = answerable_job(process, policy)
        counts, key = (self.of_users, process.uid) if job is None else (self.of_jobs, job)
        self.total += 1
        if key not in counts and len(counts) >= JOBS_COUNTED:
            del counts[next(iter(counts))]
        number = counts[key] = counts.get(key, 0) + 1
        return Found(
            process,
            device,
            size,
            blamed=job is not None,
            named=policy.action != "count" and number <= NAMED_PER_JOB,
            first=number == 1,
            last=number == NAMED_PER_JOB,
            brief=brief,
        )
