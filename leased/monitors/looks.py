"""Looks at the processes of jobs: each lasts a slice of time at most, and is its user's time.

How many processes a job has, how often they stop, and what it costs to look at one is in the hands
of its user. So what one look does not reach the next one does, a user whose share of the daemon's
time is used up is looked at later, and others are served after each slice.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TypeVar

from leased.base.waiting import Slices
from leased.connections.accounts import Accounts
from leased.connections.limits import SLICE_S
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant

SAMPLE = 8  # processes that are looked at to see whether a job that stands still goes on

T = TypeVar("T")


def for_a_slice(what: Iterable[T]) -> Iterator[T]:
    """As many as are done within a slice of time, but one at least."""
    end = time.thread_time() + SLICE_S
    for one in what:
        yield one
        if time.thread_time() > end:
            return


def keep(known: dict[int, T], jobs: Iterable[int]) -> None:
    """Forget what is known of all other jobs."""
    for gone in known.keys() - jobs:
        del known[gone]


@dataclass
class Round:
    """Goes round the processes of one job. still: those that were found unable to act since one was
    last found to run; those first that were longest ago. runs: that one."""

    still: dict[int, None] = field(default_factory=dict)
    runs: int | None = None

    def look(
        self, pids: Collection[int], is_still: Callable[[int], bool], most: int | None = None
    ) -> bool | None:
        """Look at the next ones, at most so many. Whether none of them all can act; None: that is
        not known yet."""
        self.still = {pid: None for pid in self.still if pid in pids}
        first = [self.runs] if self.runs in pids else []
        fresh = [pid for pid in pids if pid not in self.still and pid != self.runs]
        for pid in for_a_slice([*first, *fresh, *self.still][:most]):
            assert pid is not None
            self.still.pop(pid, None)
            if not is_still(pid):
                self.still.clear()
                self.runs = pid
                return False
            self.still[pid] = None
        return True if len(self.still) == len(pids) else None


class Rounds:
    """The rounds of all jobs. is_still: whether the process of a pid cannot act."""

    def __init__(self, is_still: Callable[[int], bool]) -> None:
        self.is_still = is_still
        self.of: dict[int, Round] = {}  # by job

    def look(self, tenant: Tenant, pids: Iterable[int], most: int | None = None) -> bool | None:
        """Round.look(); False where there is no process."""
        distinct = dict.fromkeys(pids)
        if not distinct:
            return False
        return self.of.setdefault(tenant.job_id, Round()).look(distinct, self.is_still, most)

    def go_on(self, tenant: Tenant, pids: Iterable[int]) -> bool:
        """Whether one of a job that stood still is found to act, or none is left. A job may stand
        still for days, so few are looked at."""
        return self.look(tenant, pids, SAMPLE) is False

    def keep(self, jobs: Iterable[int]) -> None:
        """Forget all others."""
        keep(self.of, jobs)


async def each(
    leases: Leases, payers: Accounts, tenants: Iterable[Tenant]
) -> AsyncIterator[tuple[Tenant, AbstractContextManager[None]]]:
    """The tenants that are open and whose user has time left, one after the other, with what
    charges the user. After a slice of time others are served."""
    slices = Slices()
    for tenant in list(tenants):
        if leases.tenants.has(tenant) and not payers.owes(tenant.uid):
            yield tenant, payers.charged(tenant.uid)
            await slices.rest()
