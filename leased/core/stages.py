"""From its grant to its end a lease goes through stages, and its holder hears of each.

Nobody waits: no deadline, no message. Contended: somebody waits whom it is in the
way of; it is due when its quantum ends. Revoked: it is due when it should have
drained. Overrun: it is due when its devices go to others (forfeited). A holder that
cannot act is not waited for: it is passed over as soon as somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable

from leased.core import orders
from leased.core.actions import Answer, Forfeit, Overrun, PassedOver, Revoke
from leased.core.chains import are_together
from leased.core.effects import Effects
from leased.core.quanta import Quanta
from leased.core.rules import Rules
from leased.core.short_turns import ShortTurns
from leased.core.state import Device, Tenant


class Stages:
    """end: takes a lease from its tenant."""

    def __init__(
        self,
        rules: Rules,
        effects: Effects,
        quanta: Quanta,
        short_turns: ShortTurns,
        end: Callable[[Tenant], None],
    ):
        self.rules = rules
        self.short_turns = short_turns
        self.effects = effects
        self.quanta = quanta
        self.end = end

    def revoke(self, tenant: Tenant) -> None:
        lease = tenant.lease
        assert lease is not None
        drain_ns = self.rules.drain_ns
        self.short_turns.interrupt(tenant)
        lease.revoked, lease.revoked_at = True, self.rules.now
        self.quanta.set_due(tenant, lease, self.rules.now + drain_ns)
        if lease.untold is None:
            self.effects.do(Revoke(tenant.id, lease.epoch, drain_ns))

    def end_quantum(self, tenant: Tenant) -> None:
        """The holder's time is over. It goes on where others are to end it, or where the one that
        it is in the way of is not to have the devices yet."""
        lease = tenant.lease
        assert lease is not None
        waiter = self.rules.lined.get(lease.waiter) if lease.waiter is not None else None
        if waiter is not None:
            self.effects.changed |= tenant.mask  # the waiter's turn may have come
        if tenant.ordered:
            self.effects.do(Answer(tenant.id, orders.ENDS))
        elif waiter is None or lease.until <= self.rules.now:
            self.revoke(tenant)

    def pass_over(self, holder: Tenant) -> None:
        """It cannot give back what others wait for: they have it, and it hears of it later.
        It has forfeited nothing: no work of it is under way."""
        lease = holder.lease
        assert lease is not None
        if holder.ordered and lease.untold is not None:
            return  # it has nothing to give back, and keeps its devices as it was ordered to
        if not lease.revoked:
            self.revoke(holder)
        self.end(holder)
        self.effects.do(PassedOver(holder.id, lease.epoch))

    def pass_deadlines(self) -> None:
        while (tenant := self.quanta.dues.pop(self.rules.now)) is not None:
            self._pass_due(self.rules.tenants[tenant])

    def _pass_due(self, tenant: Tenant) -> None:
        lease = tenant.lease
        assert lease is not None
        if not lease.revoked:
            self.end_quantum(tenant)
        elif tenant.parked and not self._is_awaited(tenant):
            self.quanta.set_due(tenant, lease, self.rules.now + self.rules.drain_ns)
        elif lease.overrun_at is None:
            self.effects.changed |= tenant.mask
            lease.overrun_at = lease.due
            self.quanta.set_due(tenant, lease, self.rules.now + self.rules.drain_ns)
            for uuid in tenant.gang:
                tenant.usage[uuid].overruns += 1
            self.effects.do(Overrun(tenant.id, lease.epoch))
        else:
            tenant.forfeited[lease.epoch] = lease.overrun_at
            self.end(tenant)
            self.effects.do(Forfeit(tenant.id, lease.epoch))

    def _is_awaited(self, holder: Tenant) -> bool:
        """Somebody waits for what it holds. Who is parked and hinders nobody may take its time."""
        waits = any(device.line for device in holder.devices)
        return waits or holder.mask & self.rules.drained_mask != 0

    # -- side by side --------------------------------------------------------------

    def separate(self, device: Device) -> None:
        """Holders that may no longer run side by side: one that was ordered to be there stays, else
        an online one, else the first; the others go."""
        held = [t for t in device.holders.values() if t.heeds and t.lease and not t.lease.revoked]
        if not device.clock.alone or len(held) < 2:  # or nobody has it alone
            return
        there = sorted(
            held, key=lambda t: (not t.ordered, not t.online, t.lease.epoch if t.lease else 0)
        )
        stays = there[0]
        all_share = self.rules.can_share(stays)
        for tenant in there[1:]:
            if all_share and self.rules.can_share(tenant):
                continue
            if are_together(stays, tenant):
                continue
            assert stays.lease is not None
            stays.lease.since = self.rules.now
            if not device.fits:
                device.note_separation(self.rules.now)
            self.revoke(tenant)
