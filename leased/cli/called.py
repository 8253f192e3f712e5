"""What the jobs of an answer are called."""

from __future__ import annotations

from collections.abc import Iterable

from leased.api.answers import Tenant


class Called(dict[int, str]):
    """By their numbers, jobs as squeue shows them; by its number one that is not there."""

    def __init__(self, tenants: Iterable[Tenant]):
        super().__init__({tenant["job_id"]: tenant["job"] for tenant in tenants})

    def __missing__(self, job_id: int) -> str:
        return str(job_id)

    def all(self, jobs: Iterable[int]) -> list[str]:
        return [self[job] for job in jobs]
