"""From its grant to its end a lease goes through stages, and its holder hears of each.

Nobody waits: no deadline, no message. Contended: somebody waits whom it is in the
way of; it is due when its quantum ends. Revoked: it is due when it should have
drained. Overrun: it is due when its devices go to others (forfeited). A holder that
cannot act is not waited for: it is passed over as soon as somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable

from leased.core import orders
from leased.core.actions import Answer, Effects, Forfeit, Overrun, PassedOver, Revoke
from leased.core.chains import are_together
from leased.core.deadlines import Deadlines
from leased.core.rules import MOVE_PATIENCE_NS, Rules
from leased.core.short_turns import ShortTurns
from leased.core.state import Device, Lease, Tenant
from leased.usage.handoff_times import bucket_of

RESTORE_NS = 30_000_000_000  # for memory that is swapped to come back, before the quantum begins


class Stages:
    """end: takes a lease from its tenant. dues: when tenants' leases enter their next stages."""

    def __init__(
        self,
        rules: Rules,
        effects: Effects,
        short_turns: ShortTurns,
        end: Callable[[Tenant], None],
    ):
        self.rules = rules
        self.short_turns = short_turns
        self.effects = effects
        self.dues: Deadlines[int] = Deadlines(self.pass_dues)
        self.end = end

    # -- when its quantum is over ---------------------------------------------------

    def begin(self, tenant: Tenant, lease: Lease) -> None:
        """All memory is restored, and the quantum begins, shorter if the restore took too long."""
        lease.restoring = False
        self.count_handoffs(lease)
        if not lease.joined:
            lease.since = min(self.rules.now, lease.granted_at + RESTORE_NS) - lease.ran_ns
        self.plan_again(tenant, lease)

    def count_handoffs(self, lease: Lease) -> None:
        """The holder can begin to work, so the handoffs to it are over."""
        now, devices = self.rules.now, self.rules.devices
        for since, uuids in lease.handed.items():
            bucket = bucket_of(now - since)
            for uuid in uuids:
                devices[uuid].handoff_times.add(now - since, bucket)
        lease.handed.clear()

    def go_on(self, tenant: Tenant, lease: Lease) -> None:
        """The holder has restored some of its memory."""
        lease.moved_at = self.rules.now
        self.plan_again(tenant, lease)

    def plan_ends(self, device: Device) -> None:
        """The lengths of quanta have changed on this device."""
        for holder in device.holders.values():
            if holder.lease is not None:
                self.plan_again(holder, holder.lease)

    def plan_again(self, holder: Tenant, lease: Lease) -> None:
        """The lease may end at another time, if it has an end."""
        if lease.contended and not lease.revoked:
            self.plan_end(holder, lease)

    def quantum(self, holder: Tenant, lease: Lease) -> int:
        """The holder's quantum for the waiter that it was told of."""
        rules = self.rules
        waiter = rules.tenants.get(lease.waiter) if lease.waiter is not None else None
        if rules.charges.on:
            rules.charges.charge(holder, rules.now)
            if waiter is not None:
                rules.charges.charge(waiter, rules.now)
        return rules.quantum(holder, lease.cost_ns, waiter)

    def plan_end(self, holder: Tenant, lease: Lease) -> None:
        """A contended lease ends with its quantum, however much of it is over, or sooner where
        its memory does not come back."""
        quantum = self.quantum(holder, lease)
        end = lease.since + quantum - lease.paid_ns
        if lease.restoring and quantum:
            end = min(end + RESTORE_NS, lease.moved_at + MOVE_PATIENCE_NS)
        self.set_due(holder, lease, min(max(end, self.rules.now), lease.until))

    def set_due(self, tenant: Tenant, lease: Lease, when: int | None) -> None:
        lease.due = when
        self.dues.put(tenant.id, when)

    # -- what happens then ------------------------------------------------------------

    def revoke(self, tenant: Tenant) -> None:
        lease = tenant.held
        drain_ns = self.rules.drain_ns
        self.short_turns.interrupt(tenant)
        lease.revoked, lease.revoked_at = True, self.rules.now
        self.set_due(tenant, lease, self.rules.now + drain_ns)
        if lease.untold is None:
            self.effects.do(Revoke(tenant.id, lease.epoch, drain_ns))

    def end_quantum(self, tenant: Tenant) -> None:
        """The holder's time is over. It goes on where others are to end it, or where the one that
        it is in the way of is not to have the devices yet."""
        lease = tenant.held
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
        lease = holder.held
        if holder.ordered and lease.untold is not None:
            return  # it has nothing to give back, and keeps its devices as it was ordered to
        if not lease.revoked:
            self.revoke(holder)
        self.end(holder)
        self.effects.do(PassedOver(holder.id, lease.epoch))

    def pass_dues(self, now: int) -> None:
        while (tenant := self.dues.pop(now)) is not None:
            self._pass_due(self.rules.tenants[tenant])

    def _pass_due(self, tenant: Tenant) -> None:
        lease = tenant.held
        if not lease.revoked:
            self.end_quantum(tenant)
        elif tenant.parked and not self._is_awaited(tenant):
            self.set_due(tenant, lease, self.rules.now + self.rules.drain_ns)
        elif lease.overrun_at is None:
            self.effects.changed |= tenant.mask
            lease.overrun_at = lease.due
            self.set_due(tenant, lease, self.rules.now + self.rules.drain_ns)
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
            stays.held.since = self.rules.now
            if not device.fits:
                device.note_separation(self.rules.now)
            self.revoke(tenant)
