"""What processes report of their memory.

The arbiter hears it as far as NVML supports it, the other processes of the job as it was said.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from leased.core.events import Event
from leased.core.tenant_events import MemoryChanged
from leased.gpus.devices import Overhead
from leased.leasing.departed import Departed
from leased.leasing.memory_evidence import NOTHING, MemoryEvidence, sum_of
from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages
from leased.wire.device_bytes import DeviceBytes

log = logging.getLogger("gpu-leased")


class MemoryReports:
    """Of all tenants on all devices, by UUID. run: handles events of the arbiter."""

    def __init__(
        self,
        overheads: Mapping[str, Overhead],
        clock: Callable[[], int],
        run: Callable[[Event], None],
    ) -> None:
        self.overheads = overheads
        self.evidence = {uuid: MemoryEvidence(uuid) for uuid in overheads}
        self.departed = {uuid: Departed() for uuid in overheads}
        self.clock = clock
        self.run = run

    def changed(self, tenant: Tenant) -> None:
        """One of its processes has said something else, or has ended."""
        for uuid in tenant.gang:
            self._weigh(tenant, uuid)
        if len(tenant.clients) > 1:
            self._tell_others(tenant)

    def left(self, tenant: Tenant, client: Client) -> None:
        """The connection of one of its processes has ended. NVML may show it a little longer."""
        for uuid in tenant.gang:
            self.departed[uuid].leave(client.pid)

    def check(self, uuid: str, processes: Mapping[int, int], tenants: list[Tenant]) -> None:
        """NVML shows so many bytes of the device by pid; the tenants are those that share it."""
        evidence = self.evidence[uuid]
        clients = [client for tenant in tenants for client in tenant.clients]
        settled = evidence.look(self.clock(), processes, clients)
        # What a killed process had is on its way; its contexts are what they were.
        pids = {client.pid for client in clients}
        departed = self.departed[uuid].among(processes.keys(), pids)
        self.overheads[uuid].measure(processes, settled | dict.fromkeys(departed))
        for tenant in tenants:
            self._doubt(tenant, evidence)
            if self._total(tenant, uuid) != tenant.weighed.get(uuid, NOTHING):
                self._weigh(tenant, uuid)

    def _total(self, tenant: Tenant, uuid: str) -> DeviceBytes:
        return self.evidence[uuid].total(self.clock(), tenant.clients, tenant.doubted)

    def _weigh(self, tenant: Tenant, uuid: str) -> None:
        has = tenant.weighed[uuid] = self._total(tenant, uuid)
        resident = has.resident if tenant.swaps else None
        self.run(MemoryChanged(tenant.job_id, uuid, has.evictable, has.fixed, resident))

    def _tell_others(self, tenant: Tenant) -> None:
        """Each of its processes hears what all the others say."""
        clients = list(tenant.clients)
        said = {u: [c.memory.get(u, NOTHING) for c in clients] for u in tenant.gang}
        total = {uuid: sum_of(amounts) for uuid, amounts in said.items()}
        for n, client in enumerate(clients):
            beside = {
                uuid: DeviceBytes(*(a - b for a, b in zip(total[uuid], own[n], strict=True)))
                for uuid, own in said.items()
            }
            client.send(daemon_messages.others(beside))

    def _doubt(self, tenant: Tenant, evidence: MemoryEvidence) -> None:
        liar = next((c for c in tenant.clients if evidence.doubts(c.pid)), None)
        if liar is None or tenant.doubted:
            return
        tenant.doubted = True
        log.warning(
            "job %d (uid %d): process %d says that it has more on a GPU than NVML shows; from now "
            "on the job is believed up to that",
            *(tenant.job_id, tenant.uid, liar.pid),
        )
