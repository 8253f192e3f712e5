"""Processes of one job that wait for each other's work while their lease is revoked.

What a process has submitted may wait for work of another one of its job (a collective), which
has closed its gate already. So the others may submit one call each, until all are through;
`drain.py` says who and when, and this carries it out.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from leased.leasing.arbiter_view import ArbiterView
from leased.leasing.drain import Drain
from leased.leasing.registry import Registry
from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages

SILENCE_S = 0.1  # after a revoke, before a process is taken for stuck


class StuckClients:
    """clock: monotonic ns. later: calls a function after so many seconds."""

    def __init__(self, registry: Registry, view: ArbiterView, clock: Callable[[], int]):
        self.registry = registry
        self.view = view
        self.clock = clock
        self.later: Callable[[float, Callable[[], None]], object] = lambda _, __: None

    def revoked(self, tenant: Tenant, epoch: int) -> None:
        """A lease is revoked: who does not answer for SILENCE_S may be stuck in the driver."""
        tenant.drain = Drain(epoch)
        if len(tenant.clients) > 1:
            self.later(SILENCE_S, functools.partial(self._presume, tenant, tenant.drain))

    def _presume(self, tenant: Tenant, drain: Drain[Client]) -> None:
        if not self._goes_on(tenant, drain):
            return
        for client in tenant.holders(drain.epoch):
            if not drain.answered(client):
                drain.tell_stuck(client, self.clock())
        self.let_on(tenant)

    def tell_stuck(self, tenant: Tenant, client: Client) -> None:
        """It says that the work which it has submitted does not finish."""
        drain = tenant.drain
        if drain is not None and self._goes_on(tenant, drain):
            drain.tell_stuck(client, self.clock())
            self.let_on(tenant)

    def tell_released(self, tenant: Tenant, client: Client) -> None:
        """It has released its lease."""
        if tenant.drain is not None:
            tenant.drain.tell_released(client, self.clock())

    def tell_gone(self, tenant: Tenant, client: Client) -> None:
        """Its connection has ended."""
        if tenant.drain is not None:
            tenant.drain.tell_gone(client)

    def let_on(self, tenant: Tenant) -> None:
        """Let those that are through submit a call each where a process of the revoked tenant is
        stuck. Called whenever one of them has answered, come or gone."""
        drain = tenant.drain
        if drain is None or not self._goes_on(tenant, drain):
            return
        now = self.clock()
        orders = drain.orders([c for c in tenant.clients if not c.held and not c.passed], now)
        for client in orders.let_on:
            client.held = drain.epoch
            client.send(daemon_messages.step(drain.epoch))
        for client in orders.call_back:
            client.send(daemon_messages.revoke(drain.epoch, self.view.drain_ns))
        if orders.again is not None:
            again = functools.partial(self._look_again, tenant, drain)
            self.later(max(0, orders.again - now) / 1e9, again)

    def _look_again(self, tenant: Tenant, drain: Drain[Client]) -> None:
        if tenant.drain is drain:
            self.let_on(tenant)

    def _goes_on(self, tenant: Tenant, drain: Drain[Client]) -> bool:
        """The lease that it ends is still held by somebody."""
        if not self.registry.has(tenant) or tenant.drain is not drain:
            return False
        lease = self.view.tenant(tenant.job_id).lease
        if lease is None or lease.epoch != drain.epoch or not lease.revoked:
            return False
        return bool(tenant.holders(drain.epoch))
