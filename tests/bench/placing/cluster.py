"""A cluster in simulated time: jobs arrive, a placement says which GPU each gets, and the nodes'
arbiters lease the GPUs to them.

A job that cannot be placed waits. Whenever a job ends, those that wait are tried again in the order
in which they came; a later one may overtake an earlier one that does not fit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from leased.base.errors import Refused
from leased.placement.api import Answer, Device, Placed, Request
from leased.sim.clients import Client
from leased.sim.jobs import Gpu, Job, S
from leased.sim.node import SimulatedNode
from leased.sim.timeline import Timeline

Place = Callable[[Request, Sequence[Device]], Answer]


@dataclass(frozen=True)
class Arrival:
    """A job and what it asks of the GPU that it gets; job.gpus says nothing."""

    job: Job
    request: Request


@dataclass(frozen=True)
class Outcome:
    """What came of it; times in ns. turnarounds: from submission to end, by job. gpu_ns: for how
    long GPUs had a job, in sum over the GPUs. moved: bytes over all links."""

    makespan: int
    turnarounds: tuple[int, ...]
    gpu_ns: int
    moved: int

    @property
    def jobs_per_minute(self) -> float:
        """From the first submission to the last end."""
        return len(self.turnarounds) / (self.makespan / (60 * S))

    @property
    def mean_active(self) -> float:
        """How many GPUs had a job, on average."""
        return self.gpu_ns / self.makespan

    @property
    def mean_turnaround_s(self) -> float:
        return sum(self.turnarounds) / len(self.turnarounds) / S


class Cluster:
    """One run. nodes: so many, each with these GPUs. devices: what is on each GPU, by its number
    in the cluster."""

    def __init__(
        self,
        nodes: int,
        gpus: Sequence[Gpu],
        arrivals: Sequence[Arrival],
        place: Place,
        policy: str,
    ):
        self.timeline = Timeline()
        self.arrivals = arrivals
        self.place = place
        self.nodes = [SimulatedNode(self.timeline, gpus, policy, self._ended) for _ in range(nodes)]
        self.devices = [
            Device(str(number), gpu.memory) for number, gpu in enumerate(list(gpus) * nodes)
        ]
        self.pending: list[int] = []
        self.at: dict[int, int] = {}  # the GPU of each job
        self.ends: dict[int, int] = {}
        self.since: dict[int, int] = {}  # when a GPU got its first job
        self.gpu_ns = 0

    def run(self) -> Outcome:
        """Refused: some job can never be placed, or never ends."""
        for who, arrival in enumerate(self.arrivals):
            self.timeline.at(arrival.job.submit, functools.partial(self._arrived, who))
        while self.timeline.first() is not None:
            self.timeline.step()
        if len(self.ends) < len(self.arrivals):
            raise Refused(f"{len(self.pending)} jobs fit no GPU", "give them less memory")
        submitted = [arrival.job.submit for arrival in self.arrivals]
        return Outcome(
            makespan=max(self.ends.values()) - min(submitted),
            turnarounds=tuple(self.ends[who] - submit for who, submit in enumerate(submitted)),
            gpu_ns=self.gpu_ns,
            moved=sum(sum(m.moved.values()) for node in self.nodes for m in node.memory),
        )

    def _arrived(self, who: int) -> None:
        if not self._try(who, self.devices):
            self.pending.append(who)

    def _try(self, who: int, devices: Sequence[Device]) -> bool:
        """Place the job on one of these if that can be, and let it begin."""
        arrival = self.arrivals[who]
        answer = self.place(arrival.request, devices)
        if not isinstance(answer, Placed):
            return False
        number = int(answer.device.name)
        if self.devices[number].is_idle:
            self.since[number] = self.timeline.now
        self.devices[number] = self.devices[number].joined(arrival.request)
        self.at[who] = number
        node, gpu = divmod(number, len(self.devices) // len(self.nodes))
        # Not at once: the process whose end made room here is still being told so.
        job = replace(arrival.job, gpus=(gpu,))
        self.timeline.after(0, lambda: self.nodes[node].open(who, job))
        return True

    def _ended(self, _: SimulatedNode, client: Client) -> None:
        who, number = client.who, self.at.pop(client.who)
        self.ends[who] = self.timeline.now
        self.devices[number] = self.devices[number].left(self.arrivals[who].request)
        if self.devices[number].is_idle:
            self.gpu_ns += self.timeline.now - self.since[number]
        # Only this GPU has more room than when those that wait were tried.
        self.pending = [
            each for each in self.pending if not self._try(each, [self.devices[number]])
        ]
