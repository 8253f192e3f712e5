"""Which jobs are one chain.

A job is a chain by itself: its processes and steps. Jobs of one user that name the same chain
(`--gpu-share=chain:NAME`) and have a GPU in common are one chain together. Who a job's user is, the
daemon knows from slurmstepd, and which job a process is of, from the kernel; so nobody joins a
chain by what a message says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Protocol, TypeVar

JOBS_MOST = 16  # of one chain on one GPU


class Joining(Protocol):
    """A job. gang: the UUIDs of its GPUs. chain: the name of its chain; "": it names none."""

    @property
    def uid(self) -> int: ...

    @property
    def gang(self) -> Collection[str]: ...

    @property
    def chain(self) -> str: ...


J = TypeVar("J", bound=Joining)


def are_joined(one: Joining, other: Joining) -> bool:
    """Whether the two belong to one chain."""
    if one is other:
        return True
    named = bool(one.chain) and one.chain == other.chain and one.uid == other.uid
    return named and not set(one.gang).isdisjoint(other.gang)


def members(job: J, jobs: Iterable[J]) -> list[J]:
    """The jobs of the job's chain, itself among them, in the order of `jobs`."""
    return [other for other in jobs if are_joined(job, other)]


def is_full(job: Joining, jobs: Iterable[Joining]) -> bool:
    """Whether the job's chain has as many jobs as it may have on a GPU, without this one."""
    others = [other for other in jobs if other is not job and are_joined(job, other)]
    return any(sum(uuid in other.gang for other in others) >= JOBS_MOST for uuid in job.gang)
