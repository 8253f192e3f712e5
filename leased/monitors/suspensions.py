"""Lets jobs that Slurm is about to suspend release their leases and evict their memory in time.

slurmstepd announces a suspension with SIGTSTP to its own children, and stops the job's processes
after a grace. A process with the interposer that gets the signal sends SUSPENDS. Other processes
do not get it: below a batch script or a launcher, which stops at once, they run on until the grace
is over. So the processes between a slurmstepd and such a process are looked at.

The job is parked until it has been stopped and runs again. A stop may be too short to be seen:
`scontrol suspend`, and `scontrol resume` at once. So an announced job is looked at often, and
Slurm is asked about it now and then: slurmctld shows a job as SUSPENDED before it has it
announced, and as RUNNING before it has it continued. Where the job has not been stopped when it
should have been, it was no suspension: it is unparked, and the same stop is not taken for one
again. An announcement while an earlier one is still believed counts anew: the stop of the earlier
one was too short to be seen. But Slurm is asked no later for that, and ever more rarely about a job
whose announcements come to nothing: any process can send them without end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from leased.connections.accounts import Accounts
from leased.connections.limits import Lines
from leased.core.events import Parked, Unparked
from leased.leasing.leases import Leases
from leased.leasing.tenant import Tenant
from leased.monitors.looks import Rounds, each, keep
from leased.monitors.tops import Tops
from leased.processes.identity import ProcessId
from leased.processes.stopped_processes import is_stopped, stands_still
from leased.slurm.commands import RUNNING, JobState

log = logging.getLogger("gpu-leased")

SLURM = "Slurm"  # the name by which status says who has parked the job
MARGIN_NS = 3_000_000_000  # beyond the grace, for the processes to be stopped
LOOK_AT_ALL = 8  # beats between looks at jobs that have nothing on a GPU and want nothing
WATCH_S = 0.02  # between looks whether an announced job has been stopped
ASK_S = 0.5
# Until Slurm is asked about an announced job: the grace and a second, or this if that is less. Then
# it is twice as long each time.
ASK_FIRST_NS = 3_000_000_000
ASK_AFTER_GRACE_NS = 1_000_000_000
ASK_MOST_NS = 60_000_000_000


class Above(Protocol):
    """Knows which processes are slurmstepds."""

    def below_stepd(self, pid: int) -> ProcessId | None: ...


class Controller(Protocol):
    """Knows the states of jobs: slurmctld."""

    async def jobs(self, job_ids: Collection[int]) -> Mapping[int, JobState]: ...


@dataclass
class Suspension:
    """until: when the job's processes should have been stopped. stopped: they have been. halted: a
    process right below a slurmstepd, above those on the GPU, was stopped at the last look.

    pause: until Slurm is asked about it again, at ask_at. announced: when it was last. Times in ns
    of the daemon's clock.
    """

    pause: int
    until: int = 0
    ask_at: int = 0
    announced: int = 0
    stopped: bool = False
    halted: bool = False

    def announce(self, now: int, grace_ns: int) -> None:
        """Slurm has announced it now."""
        self.announced, self.until = now, now + grace_ns + MARGIN_NS
        self.ask_at = self.ask_at or now + self.pause

    def asked(self, now: int) -> None:
        """Slurm is asked about it now."""
        self.pause = min(2 * self.pause, ASK_MOST_NS)
        self.ask_at = now + self.pause


@dataclass
class Suspensions:
    """Call beat() every LOOK_S and ask() every ASK_S, and run watch().

    grace_ns: the time that Slurm leaves between the signal and the stop.
    """

    leases: Leases
    above: Above
    slurm: Controller
    payers: Accounts
    lines: Lines
    grace_ns: Callable[[], int]
    still: Callable[[int], bool] = stands_still
    halted: Callable[[ProcessId], bool] = is_stopped
    of: dict[int, Suspension] = field(default_factory=dict)  # by job
    tops: dict[int, Tops] = field(default_factory=dict)  # by job
    pauses: dict[int, int] = field(default_factory=dict)  # by job whose announcement was in vain
    announced: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.rounds = Rounds(self.still)
        self.beats = 0

    def beat(self) -> Coroutine[Any, Any, None] | None:
        """Look once at the jobs with processes on a GPU; None: there is none to look at."""
        tenants = self.leases.tenants
        keep(self.of, tenants)
        keep(self.tops, tenants)
        keep(self.pauses, tenants)
        self.rounds.keep(tenants)
        self.beats += 1
        chosen = [t for t in tenants.values() if t.job_id in self.of or self._is_due(t)]
        return self._look_at(chosen) if chosen else None

    async def _look_at(self, chosen: list[Tenant]) -> None:
        async for tenant, charged in each(self.leases, self.payers, chosen):
            with charged:
                self._look(tenant)

    def _is_due(self, tenant: Tenant) -> bool:
        """Whether its stop can be seen, and would matter to others or it is time to look at all."""
        tops = self.tops.get(tenant.job_id)
        if tops is not None and tops.has_none(tenant.clients):
            return False
        state = self.leases.view.tenant(tenant.job_id)
        return self.beats % LOOK_AT_ALL == 0 or state.state in ("holds", "waits") or state.on_gpu

    def _look(self, tenant: Tenant) -> None:
        if tenant.job_id in self.of:
            self._follow(tenant, self.of[tenant.job_id])
        elif tenant.clients:
            tops = self._above(tenant)
            if tops.found() - tops.ignored:
                self.begin(tenant)

    async def watch(self) -> None:
        """Look at the announced jobs until each has been stopped; it does not return."""
        while True:
            self.announced.clear()
            while announced := self._announced():
                async for tenant, charged in each(self.leases, self.payers, announced):
                    suspension = self.of.get(tenant.job_id)
                    with charged:
                        if suspension is not None and not suspension.stopped:
                            self._look_for_stop(tenant, suspension)
                await asyncio.sleep(WATCH_S)
            await self.announced.wait()

    def ask(self) -> Coroutine[Any, Any, None] | None:
        """Ask Slurm about the announced jobs that have not been seen to be stopped, if it is time
        to do so for one of them."""
        now, asked = self.leases.clock(), {}
        for tenant in self._announced():
            suspension = self.of[tenant.job_id]
            if now >= suspension.ask_at:
                suspension.asked(now)
                asked[tenant.job_id] = suspension
        return self._ask(asked, now) if asked else None

    async def _ask(self, asked: Mapping[int, Suspension], now: int) -> None:
        try:
            states = await self.slurm.jobs(asked)
        except OSError as fault:
            log.info("Slurm does not say which jobs are suspended: %s", fault)
            return
        for tenant in self._announced():
            state = states.get(tenant.job_id)
            suspension = self.of[tenant.job_id]
            same = suspension is asked.get(tenant.job_id) and suspension.announced <= now
            if same and state is not None and state.state == RUNNING:
                self._was_not_stopped(tenant)

    def begin(self, tenant: Tenant) -> None:
        """Slurm is about to stop the job."""
        if self.leases.tenants.get(tenant.job_id) is not tenant:
            return
        suspension = self.of.get(tenant.job_id)
        if suspension is not None:
            self._announce_again(suspension)
            return
        self._say(tenant, "is being suspended")
        grace_ns = self.grace_ns()
        pause = min(ASK_FIRST_NS, grace_ns + ASK_AFTER_GRACE_NS)
        pause = max(pause, self.pauses.get(tenant.job_id, 0))
        suspension = self.of[tenant.job_id] = Suspension(pause)
        suspension.announce(self.leases.clock(), grace_ns)
        suspension.halted = bool(self._above(tenant).found())
        self._park(tenant)
        self.announced.set()

    def _announce_again(self, suspension: Suspension) -> None:
        if not suspension.stopped:
            suspension.announce(self.leases.clock(), self.grace_ns())

    def _announced(self) -> list[Tenant]:
        """The jobs that Slurm has announced to stop, and that have not been seen to be stopped."""
        tenants = self.leases.tenants
        return [tenants[job] for job, of in self.of.items() if job in tenants and not of.stopped]

    def _look_for_stop(self, tenant: Tenant, suspension: Suspension) -> None:
        pids = [client.pid for client in tenant.clients]
        suspension.stopped = self.rounds.look(tenant, pids) is True
        if suspension.stopped:
            self.pauses.pop(tenant.job_id, None)
            self._say(tenant, "is suspended")

    def _park(self, tenant: Tenant) -> None:
        """Unless it is parked so already, also by a move, after whose end it is parked here."""
        parked = self.leases.view.tenant(tenant.job_id).parked
        if parked is None or not parked.suspended:
            self.leases.run(Parked(tenant.job_id, SLURM, suspended=True))

    def _follow(self, tenant: Tenant, suspension: Suspension) -> None:
        self._park(tenant)
        if not suspension.stopped:
            self._look_for_stop(tenant, suspension)
            self._look_above(tenant, suspension)
            if not suspension.stopped and self.leases.clock() > suspension.until:
                self._was_not_stopped(tenant)
        elif self.rounds.go_on(tenant, [client.pid for client in tenant.clients]):
            self._end(tenant)

    def _look_above(self, tenant: Tenant, suspension: Suspension) -> None:
        """Where what Slurm stops at once has gone on and stands still again, it is a new stop."""
        before, suspension.halted = suspension.halted, bool(self._above(tenant).found())
        if suspension.halted and not before:
            self._announce_again(suspension)

    def _was_not_stopped(self, tenant: Tenant) -> None:
        tops = self._above(tenant)
        tops.ignored |= tops.found()
        self.pauses[tenant.job_id] = self.of[tenant.job_id].pause
        self._end(tenant)

    def _end(self, tenant: Tenant) -> None:
        self._say(tenant, "is no longer suspended")
        del self.of[tenant.job_id]
        if self.leases.view.parked_by(tenant.job_id) == SLURM:  # or it is moved or saved just now
            self.leases.run(Unparked(tenant.job_id))

    def _above(self, tenant: Tenant) -> Tops:
        """What stands above the job's processes, as it is now, or was when it was last seen."""
        tops = self.tops.setdefault(tenant.job_id, Tops())
        tops.look(tenant.clients, self._top, self.halted)
        return tops

    def _say(self, tenant: Tenant, what: str) -> None:
        if self.lines.may(tenant.uid):
            log.info("job %s (uid %d) %s", tenant.job, tenant.uid, what)

    def _top(self, pid: int) -> ProcessId | None:
        """The process right below a slurmstepd that is above this one.

        None: this process is right below it, and gets the signal itself.
        """
        top = self.above.below_stepd(pid)
        return top if top is not None and top.pid != pid else None
