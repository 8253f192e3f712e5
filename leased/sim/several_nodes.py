"""Simulated nodes whose daemons agree when jobs on several of them run: the daemon's own protocol
(leased/across), as leased/leasing/several_nodes.py carries it, between arbiters in one time.

Each message takes as long as the link does, and none is lost; no daemon dies.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

from leased.across import actions as across
from leased.across.across import Across
from leased.across.bounds import Bounds
from leased.core import orders
from leased.core.actions import Action, Answer
from leased.core.events import Event, Ordered, Requested
from leased.leasing.ordering import event_of, order_of
from leased.sim.clients import Client
from leased.sim.jobs import Gpu, Job
from leased.sim.node import SimulatedNode, opened
from leased.sim.ranks import Rank, Ranks
from leased.sim.timeline import Deadline, Inbox, Timeline


class Network:
    """latency: how long a message takes from one daemon to another, in ns. nodes: by name. ranks:
    of each job on several nodes."""

    def __init__(self, timeline: Timeline, latency: int):
        self.timeline, self.latency = timeline, latency
        self.nodes: dict[str, NodeOfSeveral] = {}
        self.ranks: dict[int, Ranks] = {}

    def send(self, sender: str, action: across.Send) -> None:
        node, event = self.nodes[action.node], across.Received(sender, action.message)
        self.timeline.after(self.latency, functools.partial(node.handle, event))


class NodeOfSeveral(SimulatedNode):
    """One of the nodes of a network, with its daemon's side of the protocol."""

    def __init__(
        self,
        timeline: Timeline,
        gpus: Sequence[Gpu],
        policy_name: str,
        when_ended: Callable[[SimulatedNode, Client], None],
        *,
        network: Network,
        name: str,
    ):
        self.name, self.network = name, network
        self.across = Across(name, Bounds())
        self.wants: dict[int, bool] = {}  # what was said last
        self._next = Deadline(timeline, lambda: self.handle(across.Tick()))
        self._protocol = Inbox(self._follow)
        super().__init__(timeline, gpus, policy_name, when_ended)
        network.nodes[name] = self

    def open(self, who: int, job: Job) -> None:
        if len(job.nodes) < 2:
            super().open(who, job)
            return
        self.tell(opened(who, job))
        nodes = tuple(map(node_name, job.nodes))
        self.wants[who] = False
        self.handle(across.Joined(str(who), nodes, sum(1 << gpu for gpu in job.gpus)))
        rank = Rank(self, who, job, self.network.ranks.setdefault(who, Ranks(len(nodes))))
        self.clients[who] = rank
        rank.start()

    def ended(self, who: int) -> None:
        super().ended(who)
        if self.wants.pop(who, None) is not None:
            self.handle(across.Left(str(who)))

    def tell(self, event: Event) -> None:
        super().tell(event)
        if not self._inbox.busy:
            self._look_who_wants()

    def _look_who_wants(self) -> None:
        """A job may have begun or ceased to wait for its GPUs here."""
        for who, before in list(self.wants.items()):
            client = self.clients.get(who)
            wants = client is not None and client.requested
            if wants != before:
                self.wants[who] = wants
                self.handle(across.Wants(str(who), wants))

    def _perform(self, action: Action) -> None:
        if isinstance(action, Answer):
            self.handle(event_of(action.answer, str(action.tenant)))
        else:
            super()._perform(action)

    # -- the protocol -----------------------------------------------------------------

    def handle(self, event: across.Event) -> None:
        if self._protocol.put(event):
            self._next.set(self.across.next_deadline())

    def _follow(self, event: across.Event) -> None:
        self.told += 1
        for action in self.across.handle(event, self.timeline.now):
            self._carry_out(action)

    def _carry_out(self, action: across.Action) -> None:
        if isinstance(action, across.Send):
            self.network.send(self.name, action)
        elif not isinstance(action, (across.Keep, across.Forget)):
            who, order = int(action.job), order_of(action)
            if order == orders.RUN:
                self.wants[who] = False  # as its member has it from here on
            self.tell(Ordered(who, order))
            client = self.clients.get(who)
            if order == orders.REST and client is not None and client.requested:
                self.tell(Requested(who))


def node_name(index: int) -> str:
    return f"node{index}"
