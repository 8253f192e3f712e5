"""Finds tenants whose job has ended although nobody told the daemon, by asking Slurm.

A job that is ended here although it runs loses its lease, and its processes fail. So Slurm's
answer is enough only where it names a state in which a job has no processes. Where Slurm does not
know the job, or has requeued it, the tenant ends only if no process of the job is seen here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leased.leasing.leases import Leases
from leased.slurm.commands import JobState, Slurm
from leased.store.store import Store

log = logging.getLogger("gpu-leased")

EVERY_S = 60.0
CLOCKS_S = 60.0  # by how much slurmctld's clock may be ahead of ours


@dataclass
class EndedJobs:
    """lives: whether a process of a job is known here. ended: called with a job that is over.
    heard: called with what Slurm says of all jobs, and when each began here."""

    leases: Leases
    store: Store
    slurm: Slurm
    lives: Callable[[int], bool]
    ended: Callable[[int], None]
    heard: Callable[[Mapping[int, JobState], Mapping[int, float]], None] = lambda *_: None
    fault: str = ""  # why Slurm could not be asked

    async def find(self) -> None:
        """Look at the start and every minute; it does not return."""
        while True:
            if self.leases.tenants:
                await self.look()
            await asyncio.sleep(EVERY_S)

    async def look(self) -> None:
        """Ask Slurm once, and end the tenants whose jobs are over."""
        opened = {record.job_id: record.opened for record in self.store.open_tenants()}
        asked = dict(self.leases.tenants)
        try:
            said = await self.slurm.jobs(asked)
        except OSError as fault:
            self._note(str(fault))
            return
        self._note("")
        self.heard(said, opened)
        for job_id, tenant in asked.items():
            # Otherwise a later run of the job has begun here meanwhile.
            same = self.leases.tenants.get(job_id) is tenant
            if same and self._over(job_id, said.get(job_id), opened):
                log.info("job %s has ended, and its plugin has not reported it", tenant.job)
                self.ended(job_id)

    def _over(self, job_id: int, said: JobState | None, opened: dict[int, float]) -> bool:
        if said is not None and said.absent:
            return True
        began = None if said is None else said.start
        anew = began is not None and began > opened.get(job_id, began) + CLOCKS_S
        return (said is None or anew) and not self.lives(job_id)

    def _note(self, fault: str) -> None:
        if fault and fault != self.fault:
            log.warning("Slurm does not say which jobs have ended: %s", fault)
        elif self.fault and not fault:
            log.info("Slurm says again which jobs have ended")
        self.fault = fault
