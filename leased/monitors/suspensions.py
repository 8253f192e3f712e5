"""Jobs that Slurm is about to suspend give up lease and memory while they still can.

slurmstepd announces it with SIGTSTP to its own children, and stops the job's processes a
grace later. A process with the interposer that hears the signal says so. Others do not hear it:
below a batch script or a launcher, which stops at once, they run on until the grace is over.
So who stands right below a slurmstepd and above such a process is looked at.

The job is parked until it has been stopped and goes on. Where it is not stopped, it was no
suspension: it goes on after a while, and the same stop is not taken for one again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from leased.core.events import Parked, Unparked
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.processes.identity import ProcessId
from leased.processes.stopped_processes import is_stopped, stands_still

log = logging.getLogger("gpu-leased")

SLURM = "Slurm"  # who parks a job that is suspended
MARGIN_NS = 3_000_000_000  # beyond the grace, for the processes to be stopped
SOME = 8  # processes of a suspended job that are looked at in every beat


class Above(Protocol):
    """Who knows slurmstepds."""

    def below_stepd(self, pid: int) -> ProcessId | None: ...


@dataclass
class Suspension:
    """until: when the job's processes should have been stopped. stopped: they have been."""

    until: int
    stopped: bool = False


@dataclass
class Suspensions:
    """Call beat() every LOOK_S. grace_ns: of Slurm, between the signal and the stop."""

    leases: Leases
    above: Above
    grace_ns: Callable[[], int]
    still: Callable[[int], bool] = stands_still
    halted: Callable[[ProcessId], bool] = is_stopped
    of: dict[int, Suspension] = field(default_factory=dict)  # by job
    tops: dict[int, dict[int, ProcessId | None]] = field(default_factory=dict)  # by job and pid
    ignored: set[ProcessId] = field(default_factory=set)
    looks: int = 0

    async def beat(self) -> None:
        """One look at all jobs with processes on a GPU."""
        self.looks += 1
        tenants = self.leases.tenants
        for job in [job for job in self.of if job not in tenants]:
            del self.of[job]
        self.tops = {job: known for job, known in self.tops.items() if job in tenants}
        for tenant in list(tenants.values()):
            if tenant.job_id in self.of:
                self._follow(tenant, self.of[tenant.job_id])
            elif tenant.clients and self._stopped_above(tenant) - self.ignored:
                self.begin(tenant)

    def begin(self, tenant: Tenant) -> None:
        """Slurm is about to stop the job."""
        if tenant.job_id in self.of or self.leases.tenants.get(tenant.job_id) is not tenant:
            return
        log.info("job %d (uid %d) is being suspended", tenant.job_id, tenant.uid)
        until = self.leases.clock() + self.grace_ns() + MARGIN_NS
        self.of[tenant.job_id] = Suspension(until)
        self.leases.run(Parked(tenant.job_id, SLURM, suspended=True))

    def _follow(self, tenant: Tenant, suspension: Suspension) -> None:
        if not suspension.stopped:
            suspension.stopped = bool(tenant.clients) and all(
                self.still(client.pid) for client in tenant.clients
            )
            if not suspension.stopped and self.leases.clock() > suspension.until:
                self.ignored = {top for top in self.ignored if self.halted(top)}
                self.ignored |= self._stopped_above(tenant)
                self._end(tenant)
        elif self._goes_on(tenant):
            self._end(tenant)

    def _goes_on(self, tenant: Tenant) -> bool:
        """Of many processes some are looked at in every beat: jobs are suspended for days."""
        first = SOME * self.looks % max(1, len(tenant.clients))
        some = (tenant.clients[first:] + tenant.clients[:first])[:SOME]
        return not some or any(not self.still(client.pid) for client in some)

    def _end(self, tenant: Tenant) -> None:
        log.info("job %d (uid %d) is no longer suspended", tenant.job_id, tenant.uid)
        del self.of[tenant.job_id]
        self.leases.run(Unparked(tenant.job_id))

    def _stopped_above(self, tenant: Tenant) -> set[ProcessId]:
        """Who is stopped right below a slurmstepd of the job, with processes on a GPU below it."""
        known = self.tops.get(tenant.job_id, {})
        now = {
            client.pid: known[client.pid] if client.pid in known else self._top(client.pid)
            for client in tenant.clients
        }
        self.tops[tenant.job_id] = now
        return {top for top in now.values() if top is not None and self.halted(top)}

    def _top(self, pid: int) -> ProcessId | None:
        """A process that stands there itself hears the signal."""
        top = self.above.below_stepd(pid)
        return top if top is not None and top.pid != pid else None
