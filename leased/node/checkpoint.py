"""Brings usage, what policies remember and who is parked to the disk every second or so, and a sign
of life to the watchdog."""

from __future__ import annotations

import math
import time
from collections import deque

from leased.base.service_manager import has_watchdog, notify
from leased.leasing.leases import Leases
from leased.store.store import Store

CHECKPOINT_S = 1.0
SAVE_AT_ONCE = 16  # tenants: some 0.6 ms, and as much again to write them
BEATS_MOST = 4  # in CHECKPOINT_S; more would make one grant in a hundred wait noticeably longer
QUIET_NS = 60_000_000_000  # between saves of a tenant that neither has nor wants a lease
EPOCH_MARGIN = 1_000_000  # more grants than can happen between two checkpoints


def first_epoch(store: Store) -> int:
    """An epoch above all that former daemons have granted; it is on the disk when this returns.

    A daemon after this one believes only lower ones of clients that hold a lease.
    """
    # By the clock too: where the disk was full the store may know of too low ones.
    epoch = max(store.epoch() + EPOCH_MARGIN, int(time.time() * 1e6))
    store.save({}, epoch)
    return epoch


class Checkpoint:
    """Of all tenants of the leases."""

    def __init__(self, leases: Leases, store: Store):
        self.leases = leases
        self.store = store
        self.round: deque[int] = deque()  # jobs that are still to be saved before all begins again
        # By job, when it was last saved (ns), and what its next lease or wait changes; None: it
        # had or wanted a lease then.
        self.saved: dict[int, tuple[tuple[int, int] | None, int]] = {}
        self.watchdog = has_watchdog()

    def pause(self) -> float:
        """Seconds between beats, so that each tenant has its turn within CHECKPOINT_S, and within 4
        where there are 256 tenants. They are that by a power of two, so that other beats come at
        the same moments."""
        turns = math.ceil(len(self.leases.tenants) / SAVE_AT_ONCE)
        return CHECKPOINT_S / min(BEATS_MOST, 1 << max(0, turns - 1).bit_length())

    def beat(self) -> None:
        """Take usage, a few tenants at a time, so that no lease waits for the writing of many."""
        if some := self.stirred(self.next_jobs()):
            self._save(some)
        if self.watchdog:
            notify("WATCHDOG=1")

    def write(self) -> None:
        """Write what beat() has taken: a look by itself, so that messages are served between the
        two. A full disk stops no lease; what it lacks is tried again here."""
        self.store.flush()

    def next_jobs(self) -> list[int]:
        """The next few jobs. Jobs that begin or end meanwhile change nothing for the others."""
        if not self.round:
            self.round.extend(self.leases.tenants)
            self.saved = {job: at for job, at in self.saved.items() if job in self.leases.tenants}
        return [self.round.popleft() for _ in range(min(SAVE_AT_ONCE, len(self.round)))]

    def stirred(self, jobs: list[int]) -> list[int]:
        """Those that hold or want a lease, have done so since they were last saved, or were last
        saved QUIET_NS ago: what the others have had has only grown with the time."""
        now, found = self.leases.clock(), []
        for job in jobs:
            state = self.leases.view.find_tenant(job)
            if state is None:
                continue
            rests = state.state not in ("holds", "waits")
            sign = (state.granted, state.asked_at) if rests else None
            before = self.saved.get(job)
            if rests and before and before[0] == sign and now - before[1] < QUIET_NS:
                continue
            self.saved[job] = sign, now
            found.append(job)
        return found

    def save_all(self) -> None:
        self._save(None)

    def save_parked(self, job_id: int) -> None:
        """The job was parked or unparked: save that now, so that it holds after a crash too."""
        if job_id in self.leases.tenants:
            parked = self.leases.tenants.parked_by([job_id])
            self.store.save({}, self.leases.view.epoch, parked=parked)

    def _save(self, jobs: list[int] | None) -> None:
        """None: all, at once; else write() follows."""
        tenants = self.leases.tenants
        epoch, remembered = self.leases.view.epoch, tenants.remembered(jobs)
        usage = tenants.usage(jobs)
        parked, later = tenants.parked_by(jobs), jobs is not None
        steps = tenants.usage_to_store(usage) if later else tenants.usage_by_step(usage)
        self.store.save(usage, epoch, remembered, parked, steps, later=later)
