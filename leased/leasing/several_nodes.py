"""Jobs on several nodes: carries what happens to them here to `across`, and its decisions out.

The daemons of a job's nodes agree on when it runs (docs/across.md). The arbiter of each node has
such a job as one of its tenants, whose leases are ordered (leased/core/orders.py).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

from leased.across import actions as across
from leased.across.across import Across
from leased.across.bounds import Bounds
from leased.across.messages import Message, Phase, State
from leased.core import orders
from leased.core.events import Ordered
from leased.leasing.leases import Leases
from leased.leasing.ordering import OfArbiter, event_of, order_of
from leased.leasing.tenant import Elsewhere, Tenant
from leased.store.promises import Promises

log = logging.getLogger("gpu-leased")

# What a member does, for people.
WORDS = {
    State.REST: "waits",
    State.HOLDING: "gets its GPUs",
    State.HELD: "has its GPUs",
    State.RUNNING: "runs",
    State.STOPPING: "stops",
    State.STOPPED: "has stopped",
}


class Peers(Protocol):
    """The daemons of other nodes; see leased/peers/peers.py."""

    def send(self, node: str, message: Message) -> None: ...

    def forget(self, job: str) -> None: ...

    def faults(self, nodes: Iterable[str]) -> dict[str, str]: ...


class SeveralNodes:
    """node: this one's name. drain_ns: how long a job may take to stop, on any node. first_epoch:
    above all that a daemon here has begun with. promises: what the daemon before this one had
    promised. timer: told when next_deadline() may be another one."""

    def __init__(
        self,
        leases: Leases,
        node: str,
        drain_ns: int,
        first_epoch: int,
        *,
        promises: Promises,
        peers: Peers,
    ):
        self.leases, self.node, self.promises, self.peers = leases, node, promises, peers
        self.timer: Callable[[], None] = lambda: None
        tenants = [tenant for tenant in leases.tenants.values() if tenant.nodes]
        kept = {
            str(tenant.job_id): (tenant.nodes, self._gpus(tenant))
            for tenant in tenants
            if promises.is_promised(tenant.job_id)
        }
        self.across = Across(node, Bounds(drain_ns=drain_ns), first_epoch, kept)
        self.wants: dict[str, bool] = {}  # what was said last
        self.events: deque[across.Event] = deque()
        self.busy = True
        registry = leases.tenants
        registry.on_joined, registry.on_left = self.joined, self.left
        registry.refuses_nodes, registry.elsewhere = self.refuses, self.elsewhere
        leases.grants.on_answer, leases.loop.on_settled = self.answered, self.settle
        for tenant in tenants:
            promises.open(tenant.job_id, str(tenant.job_id) in kept)
        self._carry_out(self.across.start(leases.clock()))
        self.busy = False
        for tenant in tenants:
            self._join(tenant)

    def _gpus(self, tenant: Tenant) -> int:
        devices = [self.leases.view.device(uuid).state for uuid in tenant.gang]
        return sum(device.bit for device in devices)

    # -- what happens here ----------------------------------------------------------------

    def joined(self, tenant: Tenant) -> None:
        """The job is on this node from now on."""
        self.promises.open(tenant.job_id, False)
        self._join(tenant)

    def _join(self, tenant: Tenant) -> None:
        self.handle(across.Joined(str(tenant.job_id), tenant.nodes, self._gpus(tenant)))

    def left(self, job_id: int) -> None:
        """The job has ended here."""
        self.wants.pop(str(job_id), None)
        self.handle(across.Left(str(job_id)))
        self.promises.close(job_id)
        self.peers.forget(str(job_id))

    def answered(self, tenant: Tenant, answer: str) -> None:
        """The arbiter says what has come of an order."""
        self.handle(event_of(answer, str(tenant.job_id)))

    def received(self, node: str, message: Message) -> None:
        """The daemon of another node has said something."""
        self.handle(across.Received(node, message))

    def settle(self) -> None:
        """Something may have happened to a tenant: whether its processes wait for GPUs."""
        for job in list(self.across.members):
            tenant = self.leases.tenants.get(int(job))
            wants = tenant is not None and bool(tenant.wanting())
            if wants != self.wants.get(job, False):
                self.wants[job] = wants
                self.handle(across.Wants(job, wants))

    def pass_time(self) -> None:
        """A deadline has come."""
        self.handle(across.Tick())

    def next_deadline(self) -> int | None:
        """When pass_time() is due, in ns of the leases' clock; None: never."""
        return self.across.next_deadline()

    def handle(self, event: across.Event) -> None:
        """One event after the other, with all that it leads to: what is sent later is newer."""
        self.events.append(event)
        if self.busy:
            return  # the outer call handles it
        self.busy = True
        try:
            while self.events:
                now, event = self.leases.clock(), self.events.popleft()
                actions = self.across.handle(event, now)
                if log.isEnabledFor(logging.DEBUG):
                    log.debug("at %d ns: %s leads to %s", now, event, actions)
                self._carry_out(actions)
        finally:
            self.busy = False
        self.timer()

    # -- what is to be done here ------------------------------------------------------------

    def _carry_out(self, actions: list[across.Action]) -> None:
        for action in actions:
            if isinstance(action, across.Send):
                self.peers.send(action.node, action.message)
            elif isinstance(action, (across.Keep, across.Forget)):
                self.promises.note(int(action.job), isinstance(action, across.Keep))
            else:
                self._order(action)

    def _order(self, action: OfArbiter) -> None:
        job_id, order = int(action.job), order_of(action)
        if isinstance(action, across.Run):
            self.wants[action.job] = False  # as its member has it from here on
        self.leases.run(Ordered(job_id, order))
        tenant = self.leases.tenants.get(job_id)
        if tenant is not None and order == orders.REST:
            self.leases.grants.request_again(tenant)

    def _why_first(self, tenant: Tenant, fault: str | None) -> str:
        """Why the job's first node does not let it run here; "": it has its reasons."""
        first = tenant.nodes[0]
        if fault:
            return f"gpu-leased on {first} cannot be reached: {fault}"
        member = self.across.members.get(str(tenant.job_id))
        if member is None or not member.wants or member.stamp:
            return ""
        return f"no step of it has begun on {first}, its first node"

    # -- what people ask ----------------------------------------------------------------------

    def refuses(self, nodes: tuple[str, ...]) -> str | None:
        """Why a job on these nodes cannot be here; None: it can."""
        if not nodes or self.node in nodes:
            return None
        return f"this node is {self.node} here, and the job is on others"

    def elsewhere(self, tenant: Tenant) -> Elsewhere:
        """What is known of the job on its other nodes."""
        faults = self.peers.faults(tenant.nodes)
        coordinator = self.across.coordinators.get(str(tenant.job_id))
        if coordinator is None:
            return Elsewhere(self._why_first(tenant, faults.get(tenant.nodes[0])), {})
        heard, missing = coordinator.heard, self.across.missing(str(tenant.job_id))
        # Who rests says nothing until its turn has come.
        states = {n: heard[n].state if n in heard else State.REST for n in tenant.nodes}
        words = {node: WORDS[state] for node, state in states.items() if node not in missing}
        if missing:
            said = [f"{node} ({faults[node]})" if node in faults else node for node in missing]
            return Elsewhere(f"gpu-leased has not answered on {', '.join(said)}", words)
        if coordinator.phase != Phase.REST or not coordinator.stamp:
            return Elsewhere("", words)
        late = [n for n in tenant.nodes if n not in heard or not heard[n].ready]
        return Elsewhere(f"its turn has not come on {', '.join(late)}" if late else "", words)
