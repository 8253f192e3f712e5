"""Run a trace under one setting: the daemon's own arbiter, processes and GPUs, in simulated time.

Not simulated are the GPU's own time slices, parking (but for moves to idle GPUs), strays, restarts,
and what messages within a node and launches cost.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from leased.base.errors import Refused
from leased.sim.clients import Client
from leased.sim.idle_moves import IdleMoves
from leased.sim.jobs import Job, Setting, Trace
from leased.sim.node import SimulatedNode
from leased.sim.several_nodes import Network, NodeOfSeveral, node_name
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
    """One run. ends: by job, its processes that have ended, and what each had."""

    def __init__(self, trace: Trace, setting: Setting):
        self.setting = setting
        self.jobs = [setting.of(job) for job in trace.jobs]
        self.timeline = Timeline()
        self.nodes = self._nodes(trace)
        self.ends: dict[int, list[Ended]] = defaultdict(list)
        self.done: dict[int, Ended] = {}
        self.idle_moves = [IdleMoves(node) for node in self.nodes]
        self.started: dict[int, int] = {}
        self.waiting = list(range(len(self.jobs)))  # where exclusive: jobs that may not begin yet

    def run(self) -> Result:
        """Refused: some job would never end."""
        for who, job in enumerate(self.jobs):
            begin = self._make_way if self.setting.exclusive else functools.partial(self._open, who)
            self.timeline.at(job.submit, begin)
        while len(self.done) < len(self.jobs):
            if self.timeline.first() is None or self.events > MOST_EVENTS:
                raise Refused(self._stuck(), STUCK_HINT)
            self.timeline.step()
        jobs = tuple(self.done[who] for who in range(len(self.jobs)))
        return Result(self.setting, jobs, self.events)

    def _nodes(self, trace: Trace) -> Sequence[SimulatedNode]:
        given = self.timeline, trace.gpus, self.setting.policy, self._ended
        if trace.nodes == 1:
            return [SimulatedNode(*given)]
        network = Network(self.timeline, trace.latency)
        names = map(node_name, range(trace.nodes))
        return [NodeOfSeveral(*given, network=network, name=name) for name in names]

    @property
    def events(self) -> int:
        return sum(node.told for node in self.nodes) + self.timeline.happened

    def _stuck(self) -> str:
        left = [job.name for who, job in enumerate(self.jobs) if who not in self.done]
        return f"after {self.events} events jobs have not ended: {', '.join(left[:3])}"

    def _ended(self, node: SimulatedNode, client: Client) -> None:
        """A process has. The job has when all of its processes have."""
        who, job = client.who, client.job
        self.ends[who].append(self._ended_on(node, client))
        if len(self.ends[who]) < len(job.nodes):
            return
        self.done[who] = together(self.ends.pop(who))
        if self.setting.exclusive:
            self.timeline.after(0, self._make_way)

    def _ended_on(self, node: SimulatedNode, client: Client) -> Ended:
        who, job, now = client.who, client.job, self.timeline.now
        used = node.arbiter.usage(who, now).values()
        paged = 2 * node.processors.paged.get(who, 0.0)  # it displaces as much
        moved = sum(memory.moved.get(who, 0) for memory in node.memory)
        return Ended(
            job.name,
            *(job.submit, self.started[who], now, job.alone_ns),
            client.waited_ns + self.started[who] - job.submit,
            client.moving_ns,
            sum(usage.handoffs for usage in used),
            round(moved + paged),
        )

    # -- jobs begin ---------------------------------------------------------------------

    def _make_way(self) -> None:
        """Begin jobs whose GPUs are free. No job overtakes an earlier one that waits for them."""
        running = {who for node in self.nodes for who in node.clients}
        taken = {place for who in running for place in places(self.jobs[who])}
        for who in list(self.waiting):
            job = self.jobs[who]
            if job.submit <= self.timeline.now and taken.isdisjoint(places(job)):
                self.waiting.remove(who)
                self._open(who)
            taken |= places(job)

    def _open(self, who: int) -> None:
        job = self.jobs[who]
        self.started[who] = self.timeline.now
        for n in job.nodes:
            node = self.nodes[n]
            node.open(who, job)
            if self.setting.moves and len(node.clients) == 1:
                self.idle_moves[n].begin()


def places(job: Job) -> set[tuple[int, int]]:
    """The job's GPUs, each by its node and its index there."""
    return set(itertools.product(job.nodes, job.gpus))


def together(ends: Sequence[Ended]) -> Ended:
    """What a job had whose processes had this: they waited at the same time."""
    return replace(
        ends[-1],
        waited=max(one.waited for one in ends),
        moving=max(one.moving for one in ends),
        handoffs=sum(one.handoffs for one in ends),
        moved=sum(one.moved for one in ends),
    )


def run(trace: Trace, setting: Setting) -> Result:
    """Refused: some job would never end."""
    return Simulation(trace, setting).run()
