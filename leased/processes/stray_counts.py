"""How many strays each job, or user, has had."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.processes.stray import Found, Policy, Process

NAMED_PER_JOB = 8  # further strays of the job, or user, are only counted
JOBS_COUNTED = 1024  # then the job that was counted first is forgotten


def answerable_job(process: Process, policy: Policy) -> int | None:
    """The job that answers for a stray; None: no job does, and the stray is only named."""
    if process.step is None or process.uid in policy.allow:
        return None
    return process.step.job


@dataclass
class StrayCounts:
    """total: of all strays. of_jobs: by job, those it answers for. of_users: by uid, the others."""

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
