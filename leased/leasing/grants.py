"""What the arbiter's actions become on the wire."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import assert_never

from leased.core import arbiter
from leased.leasing import memory_orders
from leased.leasing.arbiter_loop import ArbiterLoop
from leased.leasing.registry import Registry
from leased.leasing.stuck_clients import StuckClients
from leased.leasing.tenant import Client, Tenant
from leased.wire import daemon_messages

log = logging.getLogger("gpu-leased")

TURN_PART = 10


class Grants:
    """Carries out the arbiter's actions. in_flight_ns: work that a holder may have submitted
    ahead while somebody waits."""

    def __init__(
        self, loop: ArbiterLoop, registry: Registry, stuck: StuckClients, in_flight_ns: int
    ):
        self.loop = loop
        self.registry = registry
        self.stuck = stuck
        self.in_flight_ns = in_flight_ns
        # Called with a tenant that has overrun; again, with True, when it is passed over for it.
        self.on_overrun: Callable[[Tenant, bool], None] = lambda _, __: None

    def perform(self, action: arbiter.Action) -> None:
        """Carry out one action; of a tenant that is closed there is nothing to do."""
        tenant = self.registry.get(action.tenant)
        if tenant is None:
            return
        match action:
            case arbiter.Grant():
                self._grant(tenant, action)
            case arbiter.Restore():
                self._restore(tenant, action)
            case arbiter.Evict():
                memory_orders.evict(tenant, action.device, action.bytes)
            case arbiter.Leave():
                memory_orders.leave(tenant)
            case arbiter.Preload():
                memory_orders.preload(tenant, action.device, action.bytes)
            case arbiter.Expect():
                memory_orders.expect(tenant, action.device, action.bytes)
            case arbiter.Contend():
                self._contend(tenant, action)
            case arbiter.Revoke():
                self._revoke(tenant, action)
            case arbiter.PassedOver():
                self._pass_over(tenant, action)
            case arbiter.Overrun() | arbiter.Forfeit():
                self._overrun(tenant, action)
            case _ as unknown:
                assert_never(unknown)

    def join(self, tenant: Tenant, client: Client) -> None:
        """A further process of a tenant that holds a lease has it too."""
        state = self.loop.view.tenant(tenant.job_id)
        grant = arbiter.Grant(
            *(tenant.job_id, state.epoch, state.can_share, state.quantum_ns, {}), tenant.idle_ns
        )
        client.wants, client.held = False, grant.epoch
        client.send(self._message(grant))

    def _grant(self, tenant: Tenant, grant: arbiter.Grant) -> None:
        tenant.idle_ns = grant.idle_ns
        memory_orders.forget(tenant)
        wanting = tenant.wanting()
        message = self._message(grant)
        for client in wanting:
            client.wants, client.held, client.restoring = False, grant.epoch, tenant.swaps
            client.send(message)
        if not wanting:  # whoever asked is gone
            self.loop.run(arbiter.Released(grant.tenant, grant.epoch))

    def _restore(self, tenant: Tenant, action: arbiter.Restore) -> None:
        """A holder brings more of its memory back."""
        grant = arbiter.Grant(
            *(action.tenant, action.epoch, False, action.quantum_ns, action.prefetch),
            tenant.idle_ns,
        )
        tenant.tell_holders(self._message(grant, restore=True))

    def _contend(self, tenant: Tenant, action: arbiter.Contend) -> None:
        tenant.idle_ns = action.idle_ns
        ahead = self._in_flight(action.tenant)
        tenant.tell_holders(daemon_messages.contended(action.epoch, action.idle_ns, ahead))

    def _revoke(self, tenant: Tenant, revoke: arbiter.Revoke) -> None:
        tenant.tell_holders(daemon_messages.revoke(revoke.epoch, revoke.drain_ns))
        self.stuck.revoked(tenant, revoke.epoch)
        if not tenant.holders(revoke.epoch):
            self.loop.run(arbiter.Released(revoke.tenant, revoke.epoch))

    def _pass_over(self, tenant: Tenant, action: arbiter.PassedOver) -> None:
        """Those that still hold the lease cannot act. They have been told to release it, and do
        when they can; others of the job need not wait for that."""
        tenant.idle_ns = tenant.drain = None
        for client in tenant.clients:
            if client.held == action.epoch:
                client.held, client.passed = 0, action.epoch
                client.restoring = False
        log.info(
            "job %d (uid %d) is stopped or suspended while others wait: its GPUs go to them",
            *(tenant.job_id, tenant.uid),
        )
        self.ask_again(tenant)

    def ask_again(self, tenant: Tenant) -> None:
        """A lease of it is over. Who waited for that end waits for the next lease."""
        if tenant.wanting():
            self.loop.run(arbiter.Requested(tenant.job_id))

    def _overrun(self, tenant: Tenant, action: arbiter.Overrun | arbiter.Forfeit) -> None:
        forfeit = isinstance(action, arbiter.Forfeit)
        log.warning(
            "job %d (uid %d) has not released its lease %d within %g s of its revoke%s",
            *(tenant.job_id, tenant.uid, action.epoch),
            self.loop.view.drain_ns * (2 if forfeit else 1) / 1e9,
            ": the next in the queue gets its GPUs" if forfeit else "",
        )
        if forfeit:
            tenant.idle_ns = tenant.drain = None
            self.ask_again(tenant)
        self.on_overrun(tenant, forfeit)

    def _message(self, grant: arbiter.Grant, *, restore: bool = False) -> bytes:
        return daemon_messages.grant(
            *(grant.epoch, grant.quantum_ns, grant.shared, grant.prefetch),
            idle_ns=grant.idle_ns,
            in_flight_ns=self._in_flight(grant.tenant) if grant.idle_ns is not None else 0,
            restore=restore,
        )

    def _in_flight(self, job_id: int) -> int:
        """Work that a holder may have submitted ahead while somebody waits: where turns are
        short because nothing has to move, a part of one."""
        turn = self.loop.view.tenant(job_id).turn_ns
        return self.in_flight_ns if turn is None else min(self.in_flight_ns, turn // TURN_PART)
