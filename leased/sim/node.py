"""A simulated node: the daemon's own arbiter, with processes and GPUs in simulated time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from leased import policy
from leased.core.actions import Action, Contend, Evict, Grant, Leave, Preload, Revoke
from leased.core.arbiter import Arbiter
from leased.core.events import Event, Opened, PolicySet, SpeedKnown, Tick
from leased.sim.clients import Client
from leased.sim.jobs import Gpu, Job, name_of
from leased.sim.memory import GpuMemory
from leased.sim.processors import Processors
from leased.sim.timeline import Deadline, Inbox, Timeline


class SimulatedNode:
    """See swapping.Node for what processes use of it. told: events that the arbiter took.

    when_ended: called with the node and a job's process when that has ended and its usage is final.
    """

    def __init__(
        self,
        timeline: Timeline,
        gpus: Sequence[Gpu],
        policy_name: str,
        when_ended: Callable[[SimulatedNode, Client], None],
    ):
        self.timeline = timeline
        self.processors = Processors(timeline, gpus)
        self.memory = [GpuMemory(gpu) for gpu in gpus]
        self.clients: dict[int, Client] = {}
        self.when_ended = when_ended
        self.told = 0
        self._inbox = Inbox(self._take)
        self._deadline = Deadline(timeline, lambda: self.tell(Tick()))
        devices = {name_of(n): gpu.memory for n, gpu in enumerate(gpus)}
        self.arbiter = Arbiter(devices, policy.make)
        for n, gpu in enumerate(gpus):
            told = gpu.daemon_bytes_s
            for swaps, speed in ((True, gpu.link_bytes_s), (False, gpu.paging_bytes_s)):
                self.tell(SpeedKnown(name_of(n), swaps, told or speed, said=True))
            if policy_name != policy.DEFAULT:
                self.tell(PolicySet(name_of(n), policy_name))

    def open(self, who: int, job: Job) -> None:
        """The job begins."""
        self.tell(opened(who, job))
        client = self.clients[who] = Client(self, who, job)
        client.start()

    # -- what processes use -------------------------------------------------------------

    def tell(self, event: Event) -> None:
        if self._inbox.put(event):
            self._deadline.set(self.arbiter.next_deadline())

    def _take(self, event: Event) -> None:
        self.told += 1
        for action in self.arbiter.handle(event, self.timeline.now):
            self._perform(action)

    def room_freed(self, gpu: int) -> None:
        for client in list(self.clients.values()):
            if client.swaps and gpu in client.job.gpus:
                client.go_on()

    def ended(self, who: int) -> None:
        self.when_ended(self, self.clients.pop(who))

    # -- what the arbiter wants -----------------------------------------------------------

    def _perform(self, action: Action) -> None:
        client = self.clients.get(action.tenant)
        if client is None:
            return
        if isinstance(action, Grant):
            client.granted(action.epoch, action.idle_ns)
        elif isinstance(action, Contend):
            client.contended(action.epoch, action.idle_ns)
        elif isinstance(action, Revoke):
            client.revoked(action.epoch)
        elif isinstance(action, Leave):
            client.leave()
        elif isinstance(action, (Evict, Preload)) and client.swaps:
            gpu = int(action.device.removeprefix("GPU-"))
            order = client.evict if isinstance(action, Evict) else client.preload
            order(gpu, action.bytes)


def opened(who: int, job: Job) -> Opened:
    gang = tuple(name_of(gpu) for gpu in job.gpus)
    ordered = len(job.nodes) > 1
    return Opened(
        *(who, gang, job.lock, job.quantum, job.swaps, job.request, job.limit), ordered=ordered
    )
