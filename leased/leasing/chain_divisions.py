"""The chains of the node that have a GPU for themselves: how much their last components do goes in,
and what part of the GPU each component has comes out.

A component is a process that has submitted work: one that only keeps memory is none. The last one
is the process that began last, of the chain's job with the highest number. leased/chains decides;
what keeps components to a division is one of leased/chains/shares.py: on a GPU that is shared by
MPS their parts of the multiprocessors, else time slices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from _gpulease import lib

from leased.chains.optimiser import Optimiser, Window
from leased.chains.shares import Part, Shares
from leased.chains.shares import parts as parts_of
from leased.config.options import MPS, NONE
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.registry import Registry
from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages

SEVERAL_GPUS = "the GPU is not divided, since a job of it has several"
HAS_SHARE = "the GPU is not divided, since a share or a class says how one of its jobs runs"
FIXED_PART = (
    "the GPU is not divided, since a process of it keeps the part of the multiprocessors with "
    "which it began (Chain.part() of gpu_lease changes it)"
)
NOT_CONTROLLED = "the GPU is not divided, since the time slices of one of its jobs cannot be set"


@dataclass
class ChainParts:
    """One of the ways of leased/chains/shares.py: the parts of a GPU's multiprocessors that
    components of a chain use under MPS, where they change them by contexts that they have made
    (gpu_lease.chain)."""

    registry: Registry

    def said(self, tenant: Tenant, client: Client) -> None:
        """A process says that it changes its part. A daemon before this one may have told it."""
        if client.part is None:
            self._tell(tenant, client, Part())

    def apply(self, uuid: str, division: Mapping[int, int]) -> None:
        """Keep the processes of a chain to a division."""
        parts = parts_of(division)
        for tenant in self.registry.sharing(uuid):
            for client in list(tenant.clients):
                part = parts.get(client.pid, Part())
                if client.part is not None and client.part != part:
                    self._tell(tenant, client, part)

    @staticmethod
    def _tell(tenant: Tenant, client: Client, part: Part) -> None:
        client.part = part
        uuid = tenant.gang[0]  # under MPS a process has one
        client.send(daemon_messages.run(uuid, lib.GL_RUN_PART, part.percent, part.begins))


@dataclass(frozen=True)
class Component:
    """A process of a chain, and its job."""

    tenant: Tenant
    client: Client

    @property
    def works(self) -> bool:
        """Whether it is known to have submitted work."""
        return self.client.calls is not None and self.client.calls[0] > 0

    @property
    def place(self) -> tuple[int, int, int]:
        """In the order of the chain."""
        process = self.client.process
        return self.tenant.job_id, process.start if process else 0, self.client.pid


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
        self.parts = ChainParts(self.registry)

    def look(self, uuid: str) -> None:
        """Call it twice a second for each device that jobs share."""
        there = self._tenants(uuid)
        if not there:
            if self.of.pop(uuid, None) is not None:
                self.slices.apply(uuid, {})
                self.parts.apply(uuid, {})
            return
        by_parts = there[0].given.space == MPS
        refusal = _refusal(there)
        components = [] if refusal else self._components(there, by_parts)
        if any(one.client.part is None for one in components if by_parts):
            refusal, components = FIXED_PART, []
        processes = tuple(one.client.pid for one in components)
        known = self.of.get(uuid)
        same = known is not None and known.optimiser.components == processes
        begins = Window(began=self.loop.clock())
        optimiser = known.optimiser if known and same else Optimiser(processes, window=begins)
        self.of[uuid] = Division(there[0].chain, by_parts, components, optimiser, refusal)
        if components:
            self._ask(components[-1].client, optimiser)
        shares: Shares = self.parts if by_parts else self.slices
        shares.apply(uuid, dict(zip(processes, optimiser.division)))

    def _components(self, tenants: list[Tenant], by_parts: bool) -> list[Component]:
        """In their order. Of whom it is not known whether it is one, it is asked."""
        there = [
            Component(tenant, client)
            for tenant in tenants
            for client in tenant.clients
            if client.held and (by_parts or _is_controlled(client))
        ]
        for one in there:
            if not one.works:
                one.client.send(daemon_messages.MEASURE)
        return sorted((one for one in there if one.works), key=lambda one: one.place)

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
        holders = [tenant for tenant in there if self._holds(tenant)]
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
