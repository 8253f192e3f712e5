"""What parts of a GPU's multiprocessors the components of a chain use under MPS, where they change
that by contexts that they have made (gpu_lease.chain)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from _gpulease import lib

from leased.chains.shares import Part
from leased.chains.shares import parts as parts_of
from leased.leasing.registry import Registry
from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages


@dataclass
class ChainParts:
    """One of the ways of leased/chains/shares.py."""

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
