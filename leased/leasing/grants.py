"""Carries out the arbiter's actions: most of them become messages to the tenant's clients."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from leased.core import actions
from leased.core.events import Released, Requested
from leased.leasing import memory_orders
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.registry import Registry
from leased.leasing.stuck_clients import StuckClients
from leased.leasing.tenant import Client, Tenant
from leased.leasing.time_slices import TimeSlices
from leased.wire import daemon_messages

log = logging.getLogger("gpu-leased")

TURN_PART = 10  # at most this part of a short turn may be in flight


class Grants:
    """Carries out the arbiter's actions.

    in_flight_ns: how much work a holder may have in flight while another job waits.
    """

    def __init__(
        self,
        loop: ArbiterLoop,
        registry: Registry,
        stuck: StuckClients,
        slices: TimeSlices,
        in_flight_ns: int,
    ):
        self.loop = loop
        self.registry = registry
        self.stuck = stuck
        self.slices = slices
        self.in_flight_ns = in_flight_ns
        # How each kind of action is carried out.
        self.by_kind: dict[type[actions.Action], Callable[[Tenant, Any], None]] = {
            actions.Grant: self._grant,
            actions.Restore: self._restore,
            actions.Contend: self._contend,
            actions.Revoke: self._revoke,
            actions.PassedOver: self._pass_over,
            actions.Overrun: self._overrun,
            actions.Forfeit: self._overrun,
            actions.Evict: self._evict,
            actions.Leave: self._leave,
            actions.Preload: memory_orders.preload,
            actions.Expect: memory_orders.expect,
            actions.Answer: self._answer,
        }
        # Called with a tenant that has overrun; again, with True, when it has forfeited its GPUs.
        self.on_overrun: Callable[[Tenant, bool], None] = lambda _, __: None
        # Called with what the arbiter answers to the orders for a tenant of several nodes.
        self.on_answer: Callable[[Tenant, str], None] = lambda _, __: None

    def perform(self, action: actions.Action) -> None:
        """Carry out one action. A tenant that has closed needs none."""
        tenant = self.registry.get(action.tenant)
        if tenant is not None:
            self.by_kind[type(action)](tenant, action)

    def join(self, tenant: Tenant, client: Client) -> None:
        """Grant the tenant's lease to one more of its processes."""
        state = self.loop.view.tenant(tenant.job_id)
        client.wants, client.held, client.stopped = False, state.epoch, False
        client.send(self._message(tenant, state.epoch, {}))

    def _grant(self, tenant: Tenant, grant: actions.Grant) -> None:
        self.registry.steps.granted(tenant.job_id)
        tenant.idle_ns = grant.idle_ns
        memory_orders.cancel_evictions(tenant)
        wanting, swaps = tenant.wanting(), tenant.given.swaps
        message = self._message(tenant, grant.epoch, grant.prefetch)
        for client in wanting:
            client.wants, client.held, client.restoring = False, grant.epoch, swaps
            client.stopped = False
        self.slices.granted(tenant)
        for client in wanting:
            client.send(message)
        if not wanting and not tenant.nodes:  # the processes that asked have ended
            self.loop.run(Released(grant.tenant, grant.epoch))
        self.registry.steps.see(tenant.job_id, wanting)

    def _answer(self, tenant: Tenant, action: actions.Answer) -> None:
        self.on_answer(tenant, action.answer)

    def _restore(self, tenant: Tenant, action: actions.Restore) -> None:
        """Tell a holder to restore more of its memory."""
        message = self._message(tenant, action.epoch, action.prefetch, restore=True)
        tenant.tell_holders(message)

    def _evict(self, tenant: Tenant, action: actions.Evict) -> None:
        memory_orders.evict(tenant, action)
        memory_orders.send_evictions(tenant, self.registry.kin(tenant))

    def _leave(self, tenant: Tenant, action: actions.Leave) -> None:
        memory_orders.leave(tenant, action)
        memory_orders.send_evictions(tenant, self.registry.kin(tenant))

    def _contend(self, tenant: Tenant, action: actions.Contend) -> None:
        tenant.idle_ns = action.idle_ns
        ahead = self._in_flight(action.tenant)
        tenant.tell_holders(daemon_messages.contended(action.epoch, action.idle_ns, ahead))

    def _revoke(self, tenant: Tenant, revoke: actions.Revoke) -> None:
        tenant.tell_holders(daemon_messages.revoke(revoke.epoch, revoke.drain_ns))
        self.stuck.revoked(tenant, revoke.epoch)
        if not tenant.holders(revoke.epoch):
            self.loop.run(Released(revoke.tenant, revoke.epoch))

    def _pass_over(self, tenant: Tenant, action: actions.PassedOver) -> None:
        """The processes that hold the lease cannot act, so other jobs get the devices.

        These processes release the lease when they can act again. Other processes of the job do
        not wait for that: they request the next lease now.
        """
        tenant.idle_ns = tenant.drain = None
        for client in tenant.clients:
            if client.held == action.epoch:
                client.held, client.passed = 0, action.epoch
                client.restoring = False
        log.info(
            "job %s (uid %d) is stopped or suspended while others wait: its GPUs go to them",
            *(tenant.job, tenant.uid),
        )
        self.request_again(tenant)
        self.registry.steps.see(tenant.job_id, tenant.clients)

    def request_again(self, tenant: Tenant) -> None:
        """A lease of the tenant has ended: its processes that wait request the next one."""
        if tenant.wanting():
            self.loop.run(Requested(tenant.job_id))

    def _overrun(self, tenant: Tenant, action: actions.Overrun | actions.Forfeit) -> None:
        forfeit = isinstance(action, actions.Forfeit)
        if not forfeit:
            self.registry.steps.overran(tenant.job_id)
        log.warning(
            "job %s (uid %d) has not released its lease %d within %g s of its revoke%s",
            *(tenant.job, tenant.uid, action.epoch),
            self.loop.view.rules.drain_ns * (2 if forfeit else 1) / 1e9,
            ": the next in the queue gets its GPUs" if forfeit else "",
        )
        if forfeit:
            tenant.idle_ns = tenant.drain = None
            self.request_again(tenant)
        self.on_overrun(tenant, forfeit)

    def _message(
        self, tenant: Tenant, epoch: int, prefetch: Mapping[str, int], *, restore: bool = False
    ) -> bytes:
        waited_for = tenant.idle_ns is not None
        return daemon_messages.grant(
            *(epoch, prefetch),
            idle_ns=tenant.idle_ns,
            in_flight_ns=self._in_flight(tenant.job_id) if waited_for else 0,
            restore=restore,
        )

    def _in_flight(self, job_id: int) -> int:
        """How much work, in ns, the holder may have in flight while another job waits: a part of a
        turn, where turns are short."""
        arbiter = self.loop.arbiter
        turn = arbiter.rules.asked_ns(arbiter.tenants[job_id])
        return min(self.in_flight_ns, turn // TURN_PART)
