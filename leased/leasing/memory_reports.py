"""What processes report of their memory, and who is told.

The arbiter is told as much as NVML confirms, and no more than the job may have. The other processes
of the job are told what was reported.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping

from leased.core.events import Event, MemoryChanged
from leased.gpus.devices import Overhead
from leased.leasing.memory_evidence import NOTHING, MemoryEvidence, sum_of
from leased.leasing.tenant import Client, Tenant
from leased.processes.stopped_processes import stands_still
from leased.wire import daemon_messages
from leased.wire.device_bytes import DeviceBytes

log = logging.getLogger("gpu-leased")

LOOKS = 8  # polls; a process that NVML shows for longer still runs, without a connection


class Departed:
    """Processes of jobs whose connection has ended and which NVML still shows on a device.

    The kernel closes the connection of a killed process before the driver frees its memory, so NVML
    shows it in one or two more polls. Until then the memory counts as the job's.

    Each process has LOOKS polls once, however often it connects. Otherwise a process could
    reconnect again and again to keep its memory from being counted as no job's.
    """

    def __init__(self) -> None:
        self.looks: dict[int, int] = {}  # by pid: polls in which it had no connection

    def connection_ended(self, pid: int) -> None:
        """A connection of the process has ended."""
        self.looks.setdefault(pid, 0)

    def still_shown(self, shown: Collection[int], clients: Collection[int]) -> set[int]:
        """One poll. Returns the pids that NVML shows and that have no connection, but still count.

        shown: pids that NVML shows. clients: pids with a connection. A process that is no longer
        shown is forgotten.
        """
        self.looks = {pid: n for pid, n in self.looks.items() if pid in shown}
        found = set()
        for pid in self.looks.keys() - set(clients):
            self.looks[pid] += 1
            if self.looks[pid] <= LOOKS:
                found.add(pid)
        return found


class MemoryReports:
    """The reports of all tenants on all devices. clock: monotonic ns. run: handles an event."""

    def __init__(
        self,
        overheads: Mapping[str, Overhead],
        clock: Callable[[], int],
        run: Callable[[Event], None],
    ) -> None:
        self.overheads = overheads
        self.evidence = {uuid: MemoryEvidence(uuid, stands_still) for uuid in overheads}
        self.departed = {uuid: Departed() for uuid in overheads}
        self.stirred = set(overheads)  # devices of which something else was said since check()
        self.clock = clock
        self.run = run

    def stir(self, tenant: Tenant) -> None:
        """Other processes of the tenant than before are connected, or they say something else."""
        self.stirred.update(tenant.gang)

    def changed(self, tenant: Tenant) -> None:
        """A process of the tenant has reported other memory."""
        self.stir(tenant)
        for uuid in tenant.gang:
            self._report_to_arbiter(tenant, uuid)
        if len(tenant.clients) > 1:
            self._tell_others(tenant)

    def process_ended(self, tenant: Tenant) -> None:
        """A process of the open tenant that had memory has ended. Those that remain, also the last
        one, may have what it had."""
        self.stir(tenant)
        for uuid in tenant.gang:
            self._report_to_arbiter(tenant, uuid)
        self._tell_others(tenant)

    def connection_ended(self, tenant: Tenant, client: Client) -> None:
        """The connection of a process has ended. NVML may show the process a little longer."""
        self.stir(tenant)
        for uuid in tenant.gang:
            self.departed[uuid].connection_ended(client.pid)

    def check(
        self,
        uuid: str,
        processes: Mapping[int, int],
        tenants: list[Tenant],
        unconnected: Collection[int],
    ) -> None:
        """Compare the reports with NVML. processes: bytes on the device by pid, as NVML shows them.

        tenants: those that share the device. unconnected: processes of jobs without a connection.
        """
        evidence = self.evidence[uuid]
        silent = uuid not in self.stirred and not self.departed[uuid].looks
        if silent and evidence.says_the_same(self.clock(), processes):
            return
        self.stirred.discard(uuid)
        clients = [client for tenant in tenants for client in tenant.clients]
        settled = evidence.look(self.clock(), processes, clients)
        # What a killed process had is on its way; its contexts are what they were.
        pids = {client.pid for client in clients}
        departed = self.departed[uuid].still_shown(processes.keys(), pids)
        plain = settled | dict.fromkeys(departed)
        self.overheads[uuid].measure(processes, plain, unconnected)
        for tenant in tenants:
            self._doubt(tenant, evidence)
            if self._total(tenant, uuid) != tenant.believed.get(uuid, NOTHING):
                self._report_to_arbiter(tenant, uuid)

    def _total(self, tenant: Tenant, uuid: str) -> DeviceBytes:
        most = None if tenant.given.oversub else tenant.most_on(uuid)
        return self.evidence[uuid].total(self.clock(), tenant.clients, tenant.doubted, most)

    def _report_to_arbiter(self, tenant: Tenant, uuid: str) -> None:
        has = tenant.believed[uuid] = self._total(tenant, uuid)
        resident = has.resident if tenant.swaps else None
        self.run(MemoryChanged(tenant.job_id, uuid, has.evictable, has.fixed, resident))

    def _tell_others(self, tenant: Tenant) -> None:
        """Tell each process of the tenant what all others of it have."""
        clients = list(tenant.clients)
        said = {u: [c.memory.get(u, NOTHING) for c in clients] for u in tenant.gang}
        total = {uuid: sum_of(amounts) for uuid, amounts in said.items()}
        for n, client in enumerate(clients):
            beside = {
                uuid: DeviceBytes(*(a - b for a, b in zip(total[uuid], own[n])))
                for uuid, own in said.items()
            }
            client.send(daemon_messages.others(beside))

    def _doubt(self, tenant: Tenant, evidence: MemoryEvidence) -> None:
        liar = next((c for c in tenant.clients if evidence.doubts(c.pid)), None)
        if liar is None or tenant.doubted:
            return
        tenant.doubted = True
        log.warning(
            "job %s (uid %d): process %d reports more memory on a GPU than NVML shows; from now "
            "on its job's reports count only up to that",
            *(tenant.job, tenant.uid, liar.pid),
        )
