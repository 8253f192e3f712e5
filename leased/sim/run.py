"""Run a trace under one setting: the daemon's own arbiter, processes and GPUs, in simulated time.

Not simulated are the GPU's own time slices, parking (but for moves to idle GPUs), strays, restarts,
and what messages and launches cost.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from leased.base.errors import Refused
from leased.sim.clients import Client
from leased.sim.idle_moves import IdleMoves
from leased.sim.jobs import Setting, Trace
from leased.sim.node import SimulatedNode
from leased.sim.timeline import Timeline

MOST_EVENTS = 5_000_000
STUCK_HINT = (
    "give the jobs less to do, more memory to the GPU, or a quantum in which a job's memory "
    "can come in"
)


@dataclass(frozen=True)
class Ended:
    """What one job had; times in ns. alone: how long it takes where nobody disturbs it.
    waited: in which it could not begin or compute though it wanted to, the moving of its memory
    included, which alone is `moving`. handoffs: how often it got a GPU after another job."""

    name: str
    submit: int
    start: int
    end: int
    alone: int
    waited: int
    moving: int
    handoffs: int
    moved: int


@dataclass(frozen=True)
class Result:
    """What came of a setting. events: how many things happened and were told to the arbiter."""

    setting: Setting
    jobs: tuple[Ended, ...]
    events: int

    @property
    def makespan(self) -> int:
        """From the first submission to the last end."""
        return max(job.end for job in self.jobs) - min(job.submit for job in self.jobs)

    @property
    def mean_turnaround(self) -> float:
        """From submission to end, on average."""
        return sum(job.end - job.submit for job in self.jobs) / len(self.jobs)

    @property
    def handoffs(self) -> int:
        return sum(job.handoffs for job in self.jobs)

    @property
    def moved(self) -> int:
        return sum(job.moved for job in self.jobs)

    @property
    def longest_wait(self) -> int:
        """The time that the job which waited most has waited in all."""
        return max(job.waited for job in self.jobs)


class Simulation:
    """One run on one node."""

    def __init__(self, trace: Trace, setting: Setting):
        self.setting = setting
        self.jobs = [setting.of(job) for job in trace.jobs]
        self.timeline = Timeline()
        self.node = SimulatedNode(self.timeline, trace.gpus, setting.policy, self._ended)
        self.done: dict[int, Ended] = {}
        self.idle_moves = IdleMoves(self.node)
        self.started: dict[int, int] = {}
        self.waiting = list(range(len(self.jobs)))  # where exclusive: jobs that may not begin yet

    def run(self) -> Result:
        """Refused: some job would never end."""
        for who, job in enumerate(self.jobs):
            begin = self._make_way if self.setting.exclusive else functools.partial(self._open, who)
            self.timeline.at(job.submit, begin)
        told, due = -1, None
        while len(self.done) < len(self.jobs):
            if told != self.node.told:  # only an event moves the arbiter's deadlines
                told, due = self.node.told, self.node.arbiter.next_deadline()
            first = self.timeline.first()
            if (due is None and first is None) or self.events > MOST_EVENTS:
                raise Refused(self._stuck(), STUCK_HINT)
            if first is None or (due is not None and due < first):
                assert due is not None
                self.node.tick(due)
            else:
                self.timeline.step()
        jobs = tuple(self.done[who] for who in range(len(self.jobs)))
        return Result(self.setting, jobs, self.events)

    @property
    def events(self) -> int:
        return self.node.told + self.timeline.happened

    def _stuck(self) -> str:
        left = [job.name for who, job in enumerate(self.jobs) if who not in self.done]
        return f"after {self.events} events jobs have not ended: {', '.join(left[:3])}"

    def _ended(self, client: Client) -> None:
        who = client.who
        job, now = client.job, self.timeline.now
        used = self.node.arbiter.usage(who, now).values()
        paged = 2 * self.node.processors.paged.get(who, 0.0)  # it displaces as much
        moved = sum(memory.moved.get(who, 0) for memory in self.node.memory)
        self.done[who] = Ended(
            job.name,
            *(job.submit, self.started[who], now, job.alone_ns),
            client.waited_ns + self.started[who] - job.submit,
            client.moving_ns,
            sum(usage.handoffs for usage in used),
            round(moved + paged),
        )
        if self.setting.exclusive:
            self.timeline.after(0, self._make_way)

    # -- jobs begin ---------------------------------------------------------------------

    def _make_way(self) -> None:
        """Begin jobs whose GPUs are free. No job overtakes an earlier one that waits for them."""
        taken = {gpu for client in self.node.clients.values() for gpu in client.job.gpus}
        for who in list(self.waiting):
            job = self.jobs[who]
            if job.submit <= self.timeline.now and taken.isdisjoint(job.gpus):
                self.waiting.remove(who)
                self._open(who)
            taken.update(job.gpus)

    def _open(self, who: int) -> None:
        job = self.jobs[who]
        self.started[who] = self.timeline.now
        self.node.open(who, job)
        if self.setting.moves and len(self.node.clients) == 1:
            self.idle_moves.begin()


def run(trace: Trace, setting: Setting) -> Result:
    """Refused: some job would never end."""
    return Simulation(trace, setting).run()
