"""Many jobs on several nodes in simulated time, while links drop, daemons die and clocks differ."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from leased.across.across import Across
from leased.across.actions import (
    Action,
    EndWanted,
    Event,
    Forget,
    Free,
    Held,
    Hold,
    Joined,
    Keep,
    Line,
    Ready,
    Received,
    Run,
    Send,
    Stop,
    Stopped,
    Tick,
    Wants,
)
from leased.across.bounds import Bounds
from leased.across.messages import Message, Phase, State

MS = 1_000_000
S = 1000 * MS
QUANTUM = S // 2
LOCAL = "local"  # how the names of jobs on one node begin
BOUNDS = Bounds()


@dataclass
class Site:
    """One node. holds: who has which GPUs, as bits. turns: of jobs on several nodes that wait,
    whether their turn has come. line: jobs on one node that wait, in their order."""

    name: str
    clock: int
    speed: float  # of its clock
    daemon: Across | None = None
    starts: int = 1
    gpus: dict[str, int] = field(default_factory=dict)  # of each job here
    holds: dict[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)  # when each began to hold
    line: list[str] = field(default_factory=list)
    turns: dict[str, bool] = field(default_factory=dict)
    keeps: dict[str, int] = field(default_factory=dict)
    wanted: set[str] = field(default_factory=set)  # Hold, and not Held yet
    ends: set[str] = field(default_factory=set)  # to release soon
    runs: dict[str, bool] = field(default_factory=dict)  # whether its daemon has died since
    noted: dict[str, tuple[tuple[str, ...], int]] = field(default_factory=dict)
    ready_at: dict[str, int] = field(default_factory=dict)
    tick_at: int = 0
    look_at: int = 0

    def show(self, now: int) -> int:
        """What its clock shows."""
        return self.clock + int(now * self.speed)

    def when(self, shown: int) -> int:
        """When its clock shows that."""
        return int((shown - self.clock) / self.speed) + 1


class Fleet:
    """across, alone: how many jobs are on several nodes, on `widest` at most, and on one. gpus: of
    each node. turn: for how long a job on several nodes runs at least and at most, in ns. grants,
    half_gangs, deaths, drops, lost, messages: counted. grant_ns, skew_ns: measured."""

    def __init__(
        self,
        seed: int,
        nodes: int = 8,
        across: int = 40,
        alone: int = 24,
        *,
        widest: int = 8,
        gpus: int = 8,
        turn: tuple[int, int] = (S // 10, S),
    ):
        self.r = random.Random(seed)
        self.widest, self.gpus, self.turn = min(nodes, widest), gpus, turn
        self.now, self.order, self.troubled = 0, 0, True
        self.heap: list[tuple[int, int, Callable[[], None]]] = []
        self.arrives: dict[tuple[str, str], int] = {}  # the last message of one node to another
        self.down: dict[tuple[str, str], int] = {}  # links, until when
        self.grants = self.half_gangs = self.deaths = self.drops = self.lost = self.messages = 0
        self.grant_ns: list[int] = []
        self.skew_ns: list[int] = []
        self.stops: dict[str, list[int]] = {}
        self.last_run: dict[str, int] = {}
        self.doing: dict[type, Callable[[Site, Any], None]] = {
            **{Send: self._send, Line: self._line, Hold: self._hold, Run: self._run},
            **{Stop: self._stop, Free: self._free, Keep: self._keep, Forget: self._forget},
        }
        minute = 60 * S
        self.sites = {
            f"n{n}": Site(f"n{n}", self.r.randrange(20 * minute), 1 + self.r.uniform(-1e-4, 1e-4))
            for n in range(nodes)
        }
        self.jobs = self._draw_jobs(across)
        for site in self.sites.values():
            site.daemon = Across(site.name, BOUNDS)
        for job in self.jobs:
            self._join(job)
        for n in range(alone):
            site = self.sites[f"n{n % nodes}"]
            site.gpus[f"{LOCAL}{n}"] = 1 << self.r.randrange(gpus)
            self.after(self.r.randrange(S), self._ask, site, f"{LOCAL}{n}")
        self.after(S, self._trouble)

    def _draw_jobs(self, across: int) -> dict[str, tuple[str, ...]]:
        jobs = {}
        for n in range(across):
            some = self.r.sample(sorted(self.sites), self.r.choice((2, 2, 2, 3, 4, self.widest)))
            jobs[f"job{n}"] = tuple(some)
            width, gpus = self.r.choice((1, 1, 2, 4)), self.gpus
            for name in some:
                first = self.r.randrange(gpus + 1 - width)
                self.sites[name].gpus[f"job{n}"] = ((1 << width) - 1) << first
        return jobs

    def _join(self, job: str) -> None:
        for name in self.jobs[job]:
            site = self.sites[name]
            self.tell(site, Joined(job, self.jobs[job], site.gpus[job]))
        self.after(self.r.randrange(S), self._want, job)

    # -- time --------------------------------------------------------------------------

    def after(self, ns: int, what: Callable[..., None], *of: object) -> None:
        self.order += 1
        heapq.heappush(self.heap, (self.now + ns, self.order, lambda: what(*of)))

    def run(self, enough: Callable[[], bool]) -> None:
        """Go on until it is enough."""
        while not enough():
            self.now, _, do = heapq.heappop(self.heap)
            do()

    def calm(self) -> None:
        """From now on nothing fails any more."""
        self.troubled = False

    def stuck_after(self, ns: int) -> int:
        """How many jobs on several nodes do not run within so much time from now."""
        begun = self.now
        self.run(lambda: self.now >= begun + ns or min(self.last_run.values()) > begun)
        return sum(self.last_run.get(job, 0) <= begun for job in self.jobs)

    # -- daemons and messages ------------------------------------------------------------

    def tell(self, site: Site, event: Event) -> None:
        daemon = site.daemon
        if daemon is None:
            return
        self._do_all(site, daemon.handle(event, site.show(self.now)))

    def _do_all(self, site: Site, actions: list[Action]) -> None:
        for action in actions:
            self.doing[type(action)](site, action)
        self._note_ready(site)
        due = site.daemon.next_deadline() if site.daemon else None
        if due is not None:
            when = max(site.when(due), self.now + 1)
            if site.tick_at <= self.now or when < site.tick_at:
                site.tick_at = when
                self.after(when - self.now, self._tick, site, when)

    def _tick(self, site: Site, when: int) -> None:
        if site.tick_at == when:
            self.tell(site, Tick())

    def _send(self, site: Site, action: Send) -> None:
        self.messages += 1
        takes = 100_000 + int(self.r.expovariate(1 / 20_000))
        link = min(site.name, action.node), max(site.name, action.node)
        chance = self.r.random() if self.troubled else 1
        if self.down.get(link, 0) > self.now or chance < 1e-4:
            self.lost += 1
            return
        way = site.name, action.node
        self.arrives[way] = max(self.now + takes, self.arrives.get(way, 0) + 1)
        self.after(self.arrives[way] - self.now, self._arrive, *way, action.message)
        if chance < 2e-4:
            late = self.r.randrange(10 * S)
            self.after(late, self._arrive, *way, action.message)

    def _arrive(self, sender: str, to: str, message: Message) -> None:
        self.tell(self.sites[to], Received(sender, message))

    # -- what fails ------------------------------------------------------------------------

    def _trouble(self) -> None:
        if not self.troubled:
            return
        self.after(int(self.r.expovariate(1 / (20 * S))), self._trouble)
        names = sorted(self.sites)
        if self.r.random() < 0.5:
            one, other = sorted(self.r.sample(names, 2))
            self.down[one, other] = self.now + self.r.randrange(S, 10 * S)
            self.drops += 1
        else:
            self._die(self.sites[self.r.choice(names)])

    def _die(self, site: Site) -> None:
        if site.daemon is None:
            return
        site.daemon = None
        self.deaths += 1
        site.runs = dict.fromkeys(site.runs, True)
        site.turns.clear()
        site.wanted.clear()
        self.after(self.r.randrange(S // 10, 5 * S), self._start, site)

    def _start(self, site: Site) -> None:
        site.starts += 1
        site.daemon = Across(site.name, BOUNDS, site.starts << 32, dict(site.noted))
        site.keeps = {job: gpus for job, gpus in site.keeps.items() if job in site.noted}
        for job in [job for job in site.holds if job in self.jobs and job not in site.keeps]:
            del site.holds[job]
        self._do_all(site, site.daemon.start(site.show(self.now)))
        for job in site.gpus:
            if job in self.jobs:
                self.tell(site, Joined(job, self.jobs[job], site.gpus[job]))
                if job not in site.runs:
                    self.tell(site, Wants(job, True))
        self._look(site)

    # -- jobs on several nodes ---------------------------------------------------------------

    def _want(self, job: str) -> None:
        self.tell(self.sites[self.r.choice(self.jobs[job])], Wants(job, True))

    def _line(self, site: Site, action: Line) -> None:
        site.turns[action.job] = False
        self.after(0, self._look, site)

    def _hold(self, site: Site, action: Hold) -> None:
        job = action.job
        site.wanted.add(job)
        site.keeps[job] = site.gpus[job]
        for other in [o for o, gpus in site.holds.items() if gpus & site.gpus[job]]:
            self._release(site, other)
        self._see_held(site)

    def _see_held(self, site: Site) -> None:
        for job in sorted(site.wanted):
            if not any(gpus & site.gpus[job] for gpus in site.holds.values()):
                site.wanted.discard(job)
                site.holds[job] = site.gpus[job]
                self.after(0, self.tell, site, Held(job))

    def _run(self, site: Site, action: Run) -> None:
        job = action.job
        site.turns.pop(job, None)
        site.runs[job] = False
        site.since[job] = self.now
        self._count_halves(job)
        if all(job in self.sites[name].runs for name in self.jobs[job]):
            self.grants += 1
            self.last_run[job] = self.now
            self._note_grant(job)
        self.after(self.r.randrange(*self.turn), self._over, site, job, self.now)
        self._look(site)

    def _note_ready(self, site: Site) -> None:
        """Since when its daemon has called each job ready, as far as it is or holds."""
        for job, member in site.daemon.members.items() if site.daemon else ():
            if member.told[0]:
                site.ready_at.setdefault(job, self.now)
            elif member.state == State.REST and member.phase == Phase.REST:
                site.ready_at.pop(job, None)

    def _note_grant(self, job: str) -> None:
        since = [self.sites[name].ready_at.pop(job, None) for name in self.jobs[job]]
        known = [at for at in since if at is not None]
        if len(known) == len(since):
            self.grant_ns.append(self.now - max(known))

    def _over(self, site: Site, job: str, since: int) -> None:
        """The job has nothing to do for a while, or its quantum is over."""
        if job in site.runs and site.since[job] == since:
            self.tell(site, EndWanted(job))

    def _stop(self, site: Site, action: Stop) -> None:
        job = action.job
        if site.runs.get(job) is False:
            self._note_stop(job)
        self.after(self.r.randrange(MS // 5, 2 * MS), self._stopped, site, job)

    def _note_stop(self, job: str) -> None:
        stops = self.stops.setdefault(job, [])
        stops.append(self.now)
        if len(stops) == len(self.jobs[job]):
            self.skew_ns.append(stops[-1] - stops[0])
            self.stops[job] = []

    def _stopped(self, site: Site, job: str) -> None:
        if site.daemon is None:
            return
        ran = site.runs.pop(job, None) is not None
        if ran and not any(job in self.sites[name].runs for name in self.jobs[job]):
            self.after(self.r.randrange(S // 10, S), self._want, job)
            self.stops[job] = []
        self.tell(site, Stopped(job))

    def _free(self, site: Site, action: Free) -> None:
        job = action.job
        site.keeps.pop(job, None)
        site.wanted.discard(job)
        site.holds.pop(job, None)
        if not action.lined:
            site.turns.pop(job, None)
        self._count_halves(job)
        self.after(0, self._look, site)

    def _count_halves(self, job: str) -> None:
        sites = [self.sites[name] for name in self.jobs[job]]
        if any(site.runs.get(job) is False for site in sites):
            lacks = any(site.daemon is not None and job not in site.keeps for site in sites)
            self.half_gangs += lacks

    # -- jobs on one node, and whose turn it is ------------------------------------------------

    def _ask(self, site: Site, job: str) -> None:
        site.line.append(job)
        self._look(site)

    def _look(self, site: Site) -> None:
        """Give turns and free GPUs, and tell who holds too long."""
        if site.daemon is None:
            return
        self._see_held(site)
        for job, come in list(site.turns.items()):
            gpus = site.gpus[job]
            in_way = [o for o, held in site.holds.items() if held & gpus and o.startswith(LOCAL)]
            ends = max((site.since[o] + QUANTUM for o in in_way), default=0)
            if not come and ends <= self.now:
                site.turns[job] = True
                self.tell(site, Ready(job, True))
            elif not come and not self.now < site.look_at <= ends:
                site.look_at = ends
                self.after(ends - self.now, self._look, site)
        taken = 0
        for gpus in (*site.holds.values(), *(site.gpus[job] for job in site.wanted)):
            taken |= gpus
        for job in list(site.line):
            if not site.gpus[job] & taken:
                taken |= site.gpus[job]
                site.line.remove(job)
                site.holds[job], site.since[job] = site.gpus[job], self.now
                self.after(self.r.randrange(S // 10, S), self._release, site, job)

    def _release(self, site: Site, job: str) -> None:
        if job in site.holds and job.startswith(LOCAL) and job not in site.ends:
            site.ends.add(job)
            self.after(self.r.randrange(MS // 5, 2 * MS), self._released, site, job)

    def _released(self, site: Site, job: str) -> None:
        site.ends.discard(job)
        site.holds.pop(job, None)
        self.after(self.r.randrange(S // 10, S), self._ask, site, job)
        self._look(site)

    def _keep(self, site: Site, action: Keep) -> None:
        site.noted[action.job] = action.nodes, action.gpus

    def _forget(self, site: Site, action: Forget) -> None:
        site.noted.pop(action.job, None)
