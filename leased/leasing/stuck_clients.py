"""Processes of one job that wait for each other's work while their lease is revoked.

The work of one process may wait for work of another process of the job, as the kernels of a
collective do, and the other process may have shut its gate already. So the others may submit one
call each, until all work has finished. drain.py decides which and when; this file carries it out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from leased.leasing.arbiter_view import ArbiterView
from leased.leasing.drain import Drain
from leased.leasing.registry import Registry
from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages

SILENCE_S = 0.1  # a process that has not answered a revoke for so long counts as stuck


class StuckClients:
    """clock: monotonic ns. later: calls a function after so many seconds."""

    def __init__(self, registry: Registry, view: ArbiterView, clock: Callable[[], int]):
        self.registry = registry
        self.view = view
        self.clock = clock
        self.later: Callable[[float, Callable[[], None]], object] = lambda _, __: None

    def revoked(self, tenant: Tenant, epoch: int) -> None:
        """A lease is revoked. A process that does not answer for SILENCE_S may be stuck."""
        tenant.drain = Drain(epoch)
        if len(tenant.clients) > 1:
            self.later(SILENCE_S, functools.partial(self._presume, tenant, tenant.drain))

    def _presume(self, tenant: Tenant, drain: Drain[Client]) -> None:
        if not self._is_draining(tenant, drain):
            return
        for client in tenant.holders(drain.epoch):
            if not drain.has_released(client):
                drain.tell_stuck(client, self.clock())
        self.let_on(tenant)

    def tell_stuck(self, tenant: Tenant, client: Client) -> None:
        """The process says that the work which it has submitted does not finish."""
        drain = tenant.drain
        if drain is not None and self._is_draining(tenant, drain):
            drain.tell_stuck(client, self.clock())
            self.let_on(tenant)

    def let_on(self, tenant: Tenant) -> None:
        """If a process of the revoked tenant is stuck, let those that have released submit a call.

        Called whenever a process of the tenant has answered, connected or ended.
        """
        drain = tenant.drain
        if drain is None or drain.is_plain or not self._is_draining(tenant, drain):
            return
        now = self.clock()
        orders = drain.orders([c for c in tenant.clients if not c.held and not c.passed], now)
        for client in orders.let_on:
            client.held = drain.epoch
            client.send(daemon_messages.step(drain.epoch))
        for client in orders.call_back:
            client.send(daemon_messages.revoke(drain.epoch, self.view.rules.drain_ns))
        if orders.again is not None:
            again = functools.partial(self._look_again, tenant, drain)
            self.later(max(0, orders.again - now) / 1e9, again)

    def _look_again(self, tenant: Tenant, drain: Drain[Client]) -> None:
        if tenant.drain is drain:
            self.let_on(tenant)

    def _is_draining(self, tenant: Tenant, drain: Drain[Client]) -> bool:
        """Whether a process of the tenant still holds the lease that this drain ends."""
        if not self.registry.has(tenant) or tenant.drain is not drain:
            return False
        lease = self.view.lease(tenant.job_id)
        drains = lease is not None and lease.revoked and lease.epoch == drain.epoch
        return drains and bool(tenant.holders(drain.epoch))
