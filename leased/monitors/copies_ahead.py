"""Sees to it that host memory for copies exists before the first handoff (limits.swap_ahead).

Making host memory and registering it with the driver takes longer than moving the bytes. So
when the memory of a device's tenants no longer fits together, host memory is made for what each
may have to evict: a slice at a time, by the keeper and by the processes, beside their work.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from leased.copies.line import Line, Place
from leased.leasing import memory_orders
from leased.leasing.leases import Leases
from leased.leasing.tenant import Client
from leased.wire import daemon_messages

LOOK_S = 0.25
RATE = 1 << 30  # bytes a second, of the whole node


@dataclass
class CopiesAhead:
    """Call beat() every LOOK_S. most: how many bytes may be made ahead on the node."""

    leases: Leases
    most: Callable[[], int]
    line: Line = field(default_factory=Line)
    # By UUID, what each client was told.
    said: dict[Client, Mapping[str, int]] = field(default_factory=dict)

    def beat(self) -> None:
        """Make the next slice, and tell the processes."""
        memory, desk = self.leases.copies, self.leases.claims
        if memory is None or desk is None or not memory.offered:
            return
        wanted: dict[Place, int] = {}
        of_device = defaultdict(Counter[int], desk.claims.by_device())
        for tenant in self.leases.tenants.values():
            if tenant.swaps:
                for uuid in tenant.gang:
                    wanted[tenant.job_id, uuid] = of_device[uuid][tenant.job_id]
        self.line.enter(wanted, memory.pool.of_job)
        self.line.advance(wanted, self.most(), int(RATE * LOOK_S), self.leases.clock())
        self._tell()

    def _tell(self) -> None:
        """Tell each process its part, if it has changed."""
        before, self.said = self.said, {}
        for tenant in self.leases.tenants.values():
            if not tenant.swaps:
                continue
            amounts = {uuid: self.line.told[tenant.job_id, uuid] for uuid in tenant.gang}
            for client, own in memory_orders.ahead(tenant, amounts):
                self.said[client] = own
                if own != before.get(client, dict.fromkeys(own, 0)):
                    client.send(daemon_messages.ahead(own))
