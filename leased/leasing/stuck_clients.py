"""Processes of one job that wait for each other's work while their lease is revoked.

What a process has submitted may wait for work of another one of its job (a collective), which
has closed its gate already. So the others may submit one call each, until all are through.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from leased.leasing.arbiter_view import ArbiterView
from leased.leasing.registry import Registry
from leased.leasing.tenant import Tenant
from leased.wire import wire

SILENCE_S = 0.1  # after a revoke, before a process is taken for stuck


class StuckClients:
    """later: calls a function after so many seconds."""

    def __init__(self, registry: Registry, view: ArbiterView):
        self.registry = registry
        self.view = view
        self.later: Callable[[float, Callable[[], None]], object] = lambda _, __: None

    def revoked(self, tenant: Tenant, epoch: int) -> None:
        """A lease is revoked: who does not answer for SILENCE_S may be stuck in the driver."""
        if len(tenant.clients) > 1:
            self.later(SILENCE_S, functools.partial(self._presume, tenant, epoch))

    def _presume(self, tenant: Tenant, epoch: int) -> None:
        for client in tenant.clients:
            client.stuck |= client.held == epoch and not client.answered
        if self.registry.has(tenant):
            self.step(tenant, epoch)

    def step(self, tenant: Tenant, epoch: int) -> bool:
        """While one process of a revoked tenant is stuck, let those that are through submit one
        call each and drain again. Returns whether any was let on.

        No one ever runs ahead of the slowest by more than a call, so collectives find a point
        where all have submitted the same ones.
        """
        lease = self.view.tenant(tenant.job_id).lease
        if lease is None or lease.epoch != epoch or not lease.revoked:
            return False
        if not any(client.stuck for client in tenant.holders(epoch)):
            return False
        through = [c for c in tenant.clients if not c.held and not c.passed]
        tenant.stepped = tenant.stepped or bool(through)
        for other in through:
            other.held = epoch
            other.send(wire.step(epoch))
        return bool(through)

    def call_back(self, tenant: Tenant, epoch: int) -> None:
        """Nobody is stuck any more: revoke the steps that some may still take."""
        lease = self.view.tenant(tenant.job_id).lease
        if tenant.stepped and lease and not any(c.stuck for c in tenant.holders(epoch)):
            tenant.tell_holders(wire.revoke(epoch, self.view.drain_ns))
