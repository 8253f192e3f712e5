"""The processes of tenants, and what their messages mean to the arbiter."""

from __future__ import annotations

from collections.abc import Callable

from leased.connections.limits import credible
from leased.core.arbiter import Adopted, Released, Requested, Restored, SpeedMeasured
from leased.core.tenant_events import LeftUncopied, Parked
from leased.leasing import memory_orders
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.grants import Grants
from leased.leasing.memory_reports import MemoryReports
from leased.leasing.registry import Registry
from leased.leasing.stuck_clients import StuckClients
from leased.leasing.tenant import Client, Tenant
from leased.wire import client_messages, daemon_messages


class Clients:
    """A method for each message. Each connection calls them with its tenant and itself."""

    def __init__(
        self,
        loop: ArbiterLoop,
        registry: Registry,
        grants: Grants,
        stuck: StuckClients,
        reports: MemoryReports,
    ):
        self.loop = loop
        self.registry = registry
        self.grants = grants
        self.stuck = stuck
        self.reports = reports
        # Called with a tenant that Slurm is about to suspend.
        self.on_suspend: Callable[[Tenant], None] = lambda _: None

    def suspends(self, tenant: Tenant) -> None:
        """Slurm is about to stop the process."""
        self.on_suspend(tenant)

    def attach(self, tenant: Tenant, client: Client, hello: client_messages.Hello) -> None:
        """A process said HELLO: greet it, take over what it says of itself."""
        tenant.clients.append(client)
        client.send(self.registry.welcome(tenant))
        client.memory = hello.memory
        if any(c.memory for c in tenant.clients):
            self.reports.changed(tenant)
        if hello.memory:
            self._send_away_parked(tenant)
        if hello.held_epoch:
            self._adopt(tenant, client, hello.held_epoch)
        if hello.wants:
            self.request(tenant, client)

    def _send_away_parked(self, tenant: Tenant) -> None:
        """A process comes with memory, as after a restart. Of a job that is parked it leaves: the
        daemon before may have ended before it had."""
        parked = self.loop.view.tenant(tenant.job_id).parked
        if parked is not None and not parked.suspended:
            self.loop.run(Parked(tenant.job_id, parked.by))

    def _adopt(self, tenant: Tenant, client: Client, epoch: int) -> None:
        """It says that it holds a lease of before. The device may be another's by now."""
        client.held = epoch
        state = self.loop.view.tenant(tenant.job_id)
        if state.lease is None:
            self.loop.run(Adopted(tenant.job_id, epoch))
            # What one process of the job holds, the others that wait hold with it.
            if self.loop.view.tenant(tenant.job_id).lease is not None:
                for other in tenant.wanting():
                    self.request(tenant, other)
        if state.lease is None or state.lease.epoch != epoch or state.lease.revoked:
            client.send(daemon_messages.revoke(epoch, self.loop.view.drain_ns))

    def request(self, tenant: Tenant, client: Client) -> None:
        """A thread of the process waits at its gate."""
        client.wants = True
        lease = self.loop.view.tenant(tenant.job_id).lease
        if lease is None:
            self.loop.run(Requested(tenant.job_id))
        elif not lease.revoked:
            self.grants.join(tenant, client)
        else:  # that ends soon, unless another process waits for this one's work
            self.stuck.let_on(tenant)

    def released(self, tenant: Tenant, client: Client, message: client_messages.Released) -> None:
        """The process has closed its gate and drained."""
        if message.epoch and message.epoch == client.passed:
            self._released_late(tenant, client, message)
            return
        if message.epoch != client.held:
            return
        client.held = 0
        self.stuck.tell_released(tenant, client)
        self._speed_measured(tenant, message.prefetch_bytes, message.prefetch_ns)
        client.wants |= message.wants
        self._check_released(tenant, message.epoch)

    def _released_late(
        self, tenant: Tenant, client: Client, message: client_messages.Released
    ) -> None:
        """It can act again, and gives back what others have had since."""
        client.passed = 0
        memory_orders.send_evictions(tenant)
        if message.wants:
            self.request(tenant, client)

    def restored(self, tenant: Tenant, client: Client, message: client_messages.Restored) -> None:
        """All of the process' memory is back."""
        if message.epoch != client.held:
            return
        client.restoring = False
        self._speed_measured(tenant, message.bytes, message.ns)
        if not any(c.restoring and c.held for c in tenant.clients):
            self.loop.run(Restored(tenant.job_id, message.epoch))

    def _speed_measured(self, tenant: Tenant, size: int, ns: int) -> None:
        """A process says that so many bytes came to the devices of its gang together."""
        if not size or not credible(size, ns):
            return
        part = size // len(tenant.gang)
        self.loop.run(*(SpeedMeasured(tenant.job_id, uuid, part, ns) for uuid in tenant.gang))

    def stuck_in_drain(
        self, tenant: Tenant, client: Client, message: client_messages.Stuck
    ) -> None:
        """What the process submitted may wait for work of another one of its job."""
        if message.epoch == client.held:
            self.stuck.tell_stuck(tenant, client)

    def progress(self, _: Tenant, client: Client, message: client_messages.Progress) -> None:
        """An answer to ask_progress()."""
        client.calls = message.calls, self.loop.clock()

    def ask_progress(self, uuid: str) -> None:
        """Ask the processes that share the device how far they are; see Client.calls."""
        for tenant in self.registry.sharing(uuid):
            for client in tenant.clients:
                client.calls = None
                client.send(daemon_messages.MEASURE)

    def memory(self, tenant: Tenant, client: Client, message: client_messages.Memory) -> None:
        """The process has other memory than it said before."""
        if client.memory != message.memory:
            client.memory = message.memory
            self.reports.changed(tenant)

    def details(self, tenant: Tenant, client: Client, message: client_messages.Details) -> None:
        """Why memory of the process stays, and what has left without being copied."""
        if message.uuid not in tenant.gang:
            return
        client.details[message.uuid] = message
        if message.left and tenant.swaps:
            self.loop.run(LeftUncopied(tenant.job_id, message.uuid, message.left))

    def detach(self, tenant: Tenant, client: Client) -> None:
        """The connection ended: what the process held and had is free."""
        if client not in tenant.clients:
            return
        tenant.clients.remove(client)
        self.reports.left(tenant, client)
        if not self.registry.has(tenant):
            return
        held, client.held = client.held, 0
        self.stuck.tell_gone(tenant, client)
        if client.memory:
            client.memory = {}
            self.reports.changed(tenant)
        if held:
            self._check_released(tenant, held)

    def _check_released(self, tenant: Tenant, epoch: int) -> None:
        """One process has released: the tenant has where no other still holds that lease."""
        self.stuck.let_on(tenant)
        if tenant.holders(epoch):
            return
        lease = self.loop.view.tenant(tenant.job_id).lease
        if lease is None or lease.epoch == epoch:  # else it had forfeited that one
            tenant.idle_ns = tenant.drain = None
        memory_orders.send_evictions(tenant)
        self.loop.run(Released(tenant.job_id, epoch))
        self.grants.ask_again(tenant)
