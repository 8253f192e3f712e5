"""The chains of the node that have a GPU for themselves: how much their last components do goes in,
and what part of the GPU each component has comes out.

A component is a process that has submitted work. The keeper of the chain's buffers is none, though
making and giving up memory counts as work. The last one is the process that began last, of the
chain's job with the highest number. leased/chains decides; what keeps components to a division is
one of leased/chains/shares.py: on a GPU that is shared by MPS their parts of the multiprocessors,
else time slices.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from _gpulease import lib

from leased.chains.optimiser import LONGEST_NS, Optimiser, Window
from leased.chains.shares import Shares
from leased.config.options import MPS, NONE
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.chain_parts import RESTARTS_MOST, ChainParts, works
from leased.leasing.registry import Registry
from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages

SEVERAL_GPUS = "the GPU is not divided, since a job of it has several"
HAS_SHARE = "the GPU is not divided, since a share or a class says how one of its jobs runs"
FIXED_PART = (
    "the GPU is not divided, since a process of it keeps the part of the multiprocessors with "
    "which it began (Chain.part() of gpu_lease and gpu-lease-component change it)"
)
LATE = "the GPU is not divided, since a component that is to be started again has not come back"
TIRED = (
    f"the GPU is not divided, since a component was started again {RESTARTS_MOST} times within an "
    "hour"
)
NOT_CONTROLLED = "the GPU is not divided, since the time slices of one of its jobs cannot be set"


@dataclass(frozen=True)
class Component:
    """A process of a chain, and its job. client: who changes its part. workers: those that submit
    work, the first one first: the same process, or those that it starts; none while it starts them
    again."""

    tenant: Tenant
    client: Client
    workers: tuple[Client, ...]

    @property
    def place(self) -> tuple[int, int, int]:
        """In the order of the chain."""
        return _place(self.tenant, self.client)


def _place(tenant: Tenant, client: Client) -> tuple[int, int, int]:
    return tenant.job_id, client.process.start if client.process else 0, client.pid


@dataclass
class Division:
    """Of one device. by_parts: of its multiprocessors; else by time slices. refusal: why nothing is
    tried; None: see the optimiser."""

    chain: str
    by_parts: bool
    components: list[Component]
    optimiser: Optimiser
    refusal: str | None

    @property
    def why(self) -> str:
        """A phrase for people."""
        return self.refusal or self.optimiser.why


@dataclass
class ChainDivisions:
    """of: by UUID, the division of a device that one chain has for itself."""

    loop: ArbiterLoop
    registry: Registry
    slices: Shares
    of: dict[str, Division] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parts = ChainParts(self.loop, self.registry)

    def look(self, uuid: str) -> None:
        """Call it twice a second for each device that jobs share."""
        there = self._tenants(uuid)
        if not there:
            if self.of.pop(uuid, None) is not None:
                self.slices.apply(uuid, {})
                self.parts.apply(uuid, {})
            return
        by_parts = there[0].given.space == MPS
        refusal, known = _refusal(there), self.of.get(uuid)
        components = [] if refusal else self._components(there, by_parts, known)
        waiting = [one for one in components if self.parts.waits(one.client, one.workers)]
        refusal = refusal or self._parts_refusal(components if by_parts else [], waiting)
        components = [] if refusal else components
        processes = tuple(one.client.pid for one in components)
        same = known is not None and known.optimiser.components == processes
        optimiser = known.optimiser if known and same else self._begin(components)
        self.of[uuid] = Division(there[0].chain, by_parts, components, optimiser, refusal)
        if components and waiting:
            optimiser.hold(self.loop.clock())
        elif components:
            self._ask(components[-1].workers[0], optimiser)
        shares: Shares = self.parts if by_parts else self.slices
        shares.apply(uuid, dict(zip(processes, optimiser.division)))

    def _begin(self, components: list[Component]) -> Optimiser:
        again = any(one.client not in one.workers for one in components)
        return Optimiser(
            tuple(one.client.pid for one in components),
            window=Window(began=self.loop.clock()),
            rests=LONGEST_NS if again else 0,
        )

    def _components(
        self, tenants: list[Tenant], by_parts: bool, known: Division | None
    ) -> list[Component]:
        """In their order. Of whom it is not known whether it is one, it is asked."""
        found: dict[int, Component] = {}
        for tenant in tenants:
            for client in sorted(tenant.clients, key=lambda one: _place(tenant, one)):
                if client.keeper or not client.held:
                    continue
                if not (by_parts or _is_controlled(client)):
                    continue
                if not works(client):
                    client.send(daemon_messages.MEASURE)
                    continue
                by = self.parts.by(tenant, client) if by_parts else client
                before = found.get(by.pid, Component(tenant, by, ()))
                found[by.pid] = replace(before, workers=(*before.workers, client))
        for one in known.components if known else []:
            if one.client.pid not in found and self._comes_back(one):
                found[one.client.pid] = replace(one, workers=())
        return sorted(found.values(), key=lambda one: one.place)

    def _comes_back(self, one: Component) -> bool:
        """Whether a component is being started again."""
        return one.client in one.tenant.clients and self.parts.waits(one.client, ())

    def _parts_refusal(self, components: list[Component], waiting: list[Component]) -> str | None:
        """Why the multiprocessors are not divided among these."""
        if any(one.client.part is None for one in components):
            return FIXED_PART
        if any(self.parts.is_late(one.client) for one in waiting):
            return LATE
        tired = any(self.parts.is_tired(one.client) for one in components)
        return TIRED if tired else None

    def _ask(self, last: Client, optimiser: Optimiser) -> None:
        """What the last component has said goes in, and it is asked again."""
        if last.calls is not None:
            optimiser.look(self.loop.clock(), *last.calls)
        last.send(daemon_messages.MEASURE)

    def _tenants(self, uuid: str) -> list[Tenant]:
        """The jobs of the chain that has the device for itself; none: there is no such chain."""
        there = self.registry.sharing(uuid)
        if not any(tenant.chain for tenant in there):
            return []
        known = self.of.get(uuid)
        away = [one.tenant for one in known.components if self._comes_back(one)] if known else []
        holders = [tenant for tenant in there if self._holds(tenant) or tenant in away]
        chains = {(t.uid, t.chain) for t in holders}
        return holders if len(chains) == 1 and holders[0].chain else []

    def _holds(self, tenant: Tenant) -> bool:
        return self.loop.view.tenant(tenant.job_id).lease is not None


def _refusal(tenants: list[Tenant]) -> str | None:
    """Why a chain of these jobs is not divided."""
    given = [tenant.given for tenant in tenants]
    if any(len(tenant.gang) > 1 for tenant in tenants):
        return SEVERAL_GPUS
    if any(one.request or min(one.limit, one.sm) < 1 or one.job_class != NONE for one in given):
        return HAS_SHARE
    can = all(tenant.controlled or tenant.given.space == MPS for tenant in tenants)
    return None if can else NOT_CONTROLLED


def _is_controlled(client: Client) -> bool:
    said = client.channels
    return said is not None and said.state == lib.GL_CHANNELS_CONTROLLED
