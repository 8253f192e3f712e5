"""The processes of tenants, and what their messages mean to the arbiter."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from leased.classes.pulse import Work
from leased.connections.limits import credible
from leased.core.events import (
    Adopted,
    CameBack,
    LeftUncopied,
    Parked,
    Released,
    Requested,
    Restored,
    Signalled,
    SpeedMeasured,
)
from leased.leasing import memory_orders
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.grants import Grants
from leased.leasing.memory_reports import MemoryReports
from leased.leasing.registry import Registry
from leased.leasing.stuck_clients import StuckClients
from leased.leasing.tenant import Busy, Client, Tenant
from leased.memory.speed import MEASURE_FROM_BYTES
from leased.wire import client_messages, daemon_messages
from leased.wire.device_bytes import DeviceBytes

Has = dict[str, DeviceBytes]  # by UUID
LEAST_SEEN_NS = 100_000_000  # less says nothing
# Of the time in which calls were counted. If less of it was seen, the two do not go together.
MOST_OF = 0.8


@dataclass
class Clients:
    """A method for each message of a client. A connection calls it with its tenant and itself."""

    loop: ArbiterLoop
    registry: Registry
    grants: Grants
    stuck: StuckClients
    reports: MemoryReports

    def __post_init__(self) -> None:
        # Called with a tenant that Slurm is about to suspend.
        self.on_suspend: Callable[[Tenant], None] = lambda _: None
        # Called with a tenant that needs further devices, and what it sees of them.
        self.on_left: Callable[[Tenant, Mapping[str, int]], None] = self.registry.widen
        # Called with a process some of whose memory is away by a carrier that has ended.
        self.on_stranded: Callable[[Tenant, Client], None] = lambda _, __: None
        # Called with a tenant one of whose processes has connected.
        self.on_attached: Callable[[Tenant], None] = lambda _: None
        # Called with a process that has connected and what it says it has; returns what it has.
        self.on_came: Callable[[Tenant, Client, Has], Has] = lambda _, __, has: has

    def suspends(self, tenant: Tenant) -> None:
        """Slurm is about to stop the process, so the job must leave its GPUs now."""
        self.on_suspend(tenant)

    def signalled(self, tenant: Tenant) -> None:
        """A thread of the process waits at its gate and has handled a signal."""
        self.loop.run(Signalled(tenant.job_id))

    def attach(self, tenant: Tenant, client: Client, hello: client_messages.Hello) -> None:
        """A process has said HELLO: answer WELCOME, and note its lease, its memory and what it
        waits for."""
        tenant.clients.append(client)
        self.on_attached(tenant)
        tenant.cut_off = {
            (u, process) for u, process in tenant.cut_off if process != client.process
        }
        client.memory = self.on_came(tenant, client, hello.memory)
        client.send(self.registry.welcome(tenant))
        self.reports.stir(tenant)
        if self.loop.view.in_grace and (hello.held_epoch or hello.memory):
            self.loop.run(CameBack())
        if any(c.memory for c in tenant.clients):
            self.reports.changed(tenant)
        self.notice_left(tenant)
        if hello.memory:
            self._evict_if_parked(tenant)
        if hello.held_epoch:
            self._adopt(tenant, client, hello.held_epoch)
        if hello.wants:
            self.request(tenant, client)
        if client in tenant.clients:
            self.registry.steps.came(tenant.job_id, client)

    def _evict_if_parked(self, tenant: Tenant) -> None:
        """Park a parked job again if one of its processes connects with memory on a GPU.

        That happens when the previous daemon ended before the memory had been evicted.
        """
        parked = self.loop.view.tenant(tenant.job_id).parked
        if parked is not None and not parked.suspended:
            self.loop.run(Parked(tenant.job_id, parked.by))

    def _adopt(self, tenant: Tenant, client: Client, epoch: int) -> None:
        """The process says that it holds a lease of the previous daemon.

        Another job may have the device by now: then the process is told to release it.
        """
        client.held, client.borrows = epoch, bool(tenant.chain)
        if self.loop.view.lease(tenant.job_id) is None:
            self.loop.run(Adopted(tenant.job_id, epoch))
            # All processes of the job that wait get the lease which one of them holds.
            self._join_wanting(tenant)
        lease = self.loop.view.lease(tenant.job_id)
        if lease is None or lease.epoch != epoch or lease.revoked:
            client.send(daemon_messages.revoke(epoch, self.loop.view.rules.drain_ns))

    def request(self, tenant: Tenant, client: Client) -> None:
        """A thread of the process waits at its gate."""
        client.wants = True
        lease = self.loop.view.lease(tenant.job_id)
        if lease is None:
            self.loop.run(Requested(tenant.job_id))
        elif lease.can_join:
            self.grants.join(tenant, client)
        elif lease.revoked:
            # It ends soon, unless another process of the job waits for work of this one.
            self.stuck.let_on(tenant)
        # Otherwise the processes of the job will be told of it.

    def released(self, tenant: Tenant, client: Client, message: client_messages.Released) -> None:
        """The process has shut its gate, and the work that it had submitted has finished."""
        if message.epoch and message.epoch == client.passed:
            self._released_late(tenant, client, message)
            return
        if message.epoch != client.held:
            return
        client.held = 0
        client.borrows = False
        client.stopped = message.stopped
        if tenant.drain is not None:
            tenant.drain.tell_released(client, self.loop.clock())
        self._speed_measured(tenant, message.prefetch_bytes, message.prefetch_ns)
        client.wants |= message.wants
        self._check_released(tenant, message.epoch)
        self._join_wanting(tenant)

    def _join_wanting(self, tenant: Tenant) -> None:
        """The job may have a lease while processes of it wait that have just released: one that was
        idle, or another lease that the job had lost. They wait for none of their own job."""
        lease = self.loop.view.lease(tenant.job_id)
        if lease is not None and lease.can_join:
            for client in tenant.wanting():
                self.grants.join(tenant, client)

    def _released_late(
        self, tenant: Tenant, client: Client, message: client_messages.Released
    ) -> None:
        """The process can act again and releases a lease that its job had lost meanwhile."""
        client.passed = 0
        self._end_turn(tenant, client)
        if message.wants:
            self.request(tenant, client)

    def _end_turn(self, tenant: Tenant, client: Client) -> None:
        """The process has none of its chain's memory open any more."""
        client.borrows = False
        self._send_evictions(tenant)

    def _send_evictions(self, tenant: Tenant) -> None:
        """To its processes, and to those of its chain that have waited for it."""
        kin = self.registry.kin(tenant)
        for one in kin:
            memory_orders.send_evictions(one, kin)

    def restored(self, tenant: Tenant, client: Client, message: client_messages.Restored) -> None:
        """All memory of the process is restored."""
        if message.epoch != client.held:
            return
        client.restoring = False
        self._speed_measured(tenant, message.bytes, message.ns)
        if not any(c.restoring and c.held for c in tenant.clients):
            self.loop.run(Restored(tenant.job_id, message.epoch))

    def _speed_measured(self, tenant: Tenant, size: int, ns: int) -> None:
        """A process has restored so many bytes in so many ns, on all devices of its gang."""
        if not size or not credible(size, ns):
            return
        part = size // len(tenant.gang)
        if part >= MEASURE_FROM_BYTES:
            self.loop.run(*(SpeedMeasured(tenant.job_id, uuid, part, ns) for uuid in tenant.gang))

    def stuck_in_drain(
        self, tenant: Tenant, client: Client, message: client_messages.Stuck
    ) -> None:
        """Work of the process does not finish: it may wait for work of another one of its job."""
        if message.epoch == client.held:
            self.stuck.tell_stuck(tenant, client)

    def progress(self, _: Tenant, client: Client, message: client_messages.Progress) -> None:
        """The process answers MEASURE: how many calls it has submitted so far, and how much of the
        time it has had work since it was last asked. It is asked for each of its devices: a time
        that says nothing yet is added to the next one."""
        now, before, told = self.loop.clock(), client.progress, client.progress_at
        client.calls = message.calls, now
        seen, busy = message.seen_ns - before.seen_ns, message.busy_ns - before.busy_ns
        if seen < LEAST_SEEN_NS:
            return
        unfinished, wanted = (
            min(1.0, max(0, ns) / seen) for ns in (busy, message.wanted_ns - before.wanted_ns)
        )
        client.busy = Busy(unfinished, wanted, now)
        if told is not None and seen >= MOST_OF * (now - told) and 0 <= busy <= seen:
            more = Work(
                message.done - before.done,
                message.done_ns - before.done_ns,
                message.bursts - before.bursts,
                message.done_graphs - before.done_graphs,
            )
            client.work = (client.work or Work()).plus(more)
        client.progress_at = now
        client.progress = message

    def memory(self, tenant: Tenant, client: Client, message: client_messages.Memory) -> None:
        """The process says how much memory it has now."""
        if client.arriving and client.arriving not in message.memory:
            return  # it said this before it knew that it was moved
        client.arriving = ""
        if client.memory != message.memory:
            client.memory = message.memory
            self.reports.changed(tenant)
            self.notice_left(tenant)

    def notice_left(self, tenant: Tenant) -> None:
        """A process of a job that was moved uses a GPU that the job had before: the job needs both
        from now on."""
        if not tenant.former:
            return
        used = {uuid for client in tenant.clients for uuid in client.memory}
        left = {uuid: most for uuid, most in tenant.former.items() if uuid in used}
        if left.keys() - tenant.totals.keys():
            self.on_left(tenant, left)

    def details(self, tenant: Tenant, client: Client, message: client_messages.Details) -> None:
        """The process says why memory of it is fixed, and how much was evicted without a copy."""
        if message.uuid not in tenant.gang:
            return
        client.details[message.uuid] = message
        if message.left and tenant.swaps:
            self.loop.run(LeftUncopied(tenant.job_id, message.uuid, message.left))

    def end_without_opener(self, pids: Collection[int]) -> None:
        """These processes use a GPU now. A connection may have been passed on, and the process that
        opened it have ended: then one of them may only have its number, and neither its memory nor
        its work is that client's. So the connection is closed."""
        for tenant in self.registry.values() if pids else ():
            for client in [client for client in tenant.clients if client.pid in pids]:
                if not client.has_opener():
                    client.close()

    def detach(self, tenant: Tenant, client: Client) -> None:
        """The connection of a process has ended: its lease is released and its memory is free."""
        if client not in tenant.clients:
            return
        tenant.clients.remove(client)
        self.registry.steps.gone(tenant.job_id, client)
        self.reports.connection_ended(tenant, client)
        if not self.registry.has(tenant):
            return
        held, client.held = client.held, 0
        if held and client.process is not None:
            tenant.cut_off |= {(uuid, client.process) for uuid in tenant.gang}
        if tenant.drain is not None:
            tenant.drain.tell_gone(client)
        if client.memory:
            client.memory = {}
            self.reports.process_ended(tenant)
        if held:
            self._check_released(tenant, held)
        elif client.passed:
            self._send_evictions(tenant)

    def _check_released(self, tenant: Tenant, epoch: int) -> None:
        """A process has released. The tenant has when none of its processes holds the lease."""
        self.stuck.let_on(tenant)
        for client in tenant.clients:
            if client.held == epoch:
                return
        lease = self.loop.view.lease(tenant.job_id)
        if lease is None or lease.epoch == epoch:  # or it had forfeited it
            tenant.idle_ns = tenant.drain = None
        self._send_evictions(tenant)
        released = Released(tenant.job_id, epoch)
        if tenant.wanting():  # they wait for the next lease already
            self.loop.run(released, Requested(tenant.job_id))
        else:
            self.loop.run(released)
