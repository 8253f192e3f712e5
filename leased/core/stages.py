"""From its grant to its end a lease goes through stages, and its holder hears of each.

Nobody waits: no deadline, no message. Contended: somebody waits whom it is in the
way of; it is due when its quantum ends. Revoked: it is due when it should have
drained. Overrun: it is due when its devices go to others (forfeited). A holder that
cannot act is not waited for: it is passed over as soon as somebody waits.
"""

from __future__ import annotations

from collections.abc import Callable

from leased.core.actions import Contend, Expect, Forfeit, Overrun, PassedOver, Revoke
from leased.core.cohort import ALONE, FREE, Cohort
from leased.core.deadlines import Deadlines
from leased.core.effects import Effects
from leased.core.rules import MOVE_PATIENCE_NS, Rules
from leased.core.state import FOREVER, Device, Lease, Tenant

IDLE_FLOOR_NS = 2_000_000
RESTORE_NS = 30_000_000_000  # for memory that is swapped to come back, before the quantum begins


class Stages:
    """end: takes a lease from its tenant."""

    def __init__(self, rules: Rules, effects: Effects, end: Callable[[Tenant], None]):
        self.rules = rules
        self.effects = effects
        self.end = end
        self.dues: Deadlines[int] = Deadlines()  # when a tenant's lease enters its next stage

    # -- contended -----------------------------------------------------------------

    def tell(self, holding: list[Cohort]) -> None:
        """Tell the holders of these cohorts for whom it is news that somebody in the line waits
        for them, or that nobody does any more."""
        drained, queued = self.rules.drained_mask, self.rules.cohorts.queued
        for cohort in holding:
            if self.rules.cohorts.holders.is_settled(cohort) and not self.rules.cheaper(cohort):
                continue
            first = queued.first_against(cohort)
            waiter, cohort.watched = (first.first, first.mask) if first else (None, 0)
            if waiter is not None or cohort.mask & drained:
                if cohort.calm or cohort.most_cost or cohort.waiter is not waiter:
                    self._tell_cohort(cohort, waiter)
            else:
                for holder in list(cohort.told.values()):
                    self.end_contention(holder)
            self.rules.cohorts.holders.settle(cohort)

    def _tell_cohort(self, cohort: Cohort, waiter: Tenant | None) -> None:
        """waiter: the first that it is in the way of; None: the site has drained its device."""
        if waiter and self.rules.costs_less(waiter, cohort.most_cost / 2):
            self._contend_again(cohort, waiter, self.rules.cost(waiter))
        elif waiter and waiter is not cohort.waiter:
            self._plan_again(cohort, waiter)
        cohort.waiter, cohort.dear = waiter, None
        for holder in list(cohort.calm.values()):
            if holder.frozen:
                self.pass_over(holder)
                continue
            self.contend(holder, waiter, FOREVER)
            if waiter and holder.swaps:
                self._expect(holder, waiter)

    def _plan_again(self, cohort: Cohort, waiter: Tenant) -> None:
        """Another waiter is the first now, and its policy may want another end for it."""
        for holder in list(cohort.told.values()):
            lease = holder.lease
            assert lease is not None
            lease.waiter = waiter.id
            self._plan_end(holder, lease)

    def _contend_again(self, cohort: Cohort, waiter: Tenant, cost: int) -> None:
        """Another waiter is the first now, for whom the quantum may not need to be as long."""
        self.rules.cohorts.holders.set_cost(cohort, 2 * cost)
        for holder in list(cohort.told.values()):
            lease = holder.lease
            assert lease is not None
            if 2 * cost < lease.cost_ns:
                holder.debt_ns += lease.paid_ns
                self.contend(holder, waiter, lease.until)

    def contend(self, holder: Tenant, waiter: Tenant | None, until: int) -> None:
        """This one waits for it, None: nobody whom it must make way for yet; it must be gone by
        `until`."""
        lease, cohort = holder.lease, self.rules.cohorts.of[holder.id]
        assert lease is not None
        cost = self.rules.cost(waiter) if waiter else 0
        patience = cost
        if waiter:
            policy = self.rules.policies.of(holder)
            patience = policy.patience(self.rules, holder, waiter, cost)
        holders = self.rules.cohorts.holders
        holders.tell(holder, cohort, True)
        holders.set_cost(cohort, max(cohort.most_cost, cost))
        lease.contended, lease.cost_ns, lease.until = True, cost, until
        lease.waiter = waiter.id if waiter else None
        lease.paid_ns = 0
        if holder.debt_ns:
            lease.paid_ns = min(holder.debt_ns, self._quantum(holder, lease) // 2)
            holder.debt_ns -= lease.paid_ns
        self.effects.contend(Contend(holder.id, lease.epoch, max(patience, IDLE_FLOOR_NS)))
        self._plan_end(holder, lease)
        if lease.due is not None and lease.due <= self.rules.now:
            self.revoke(holder)

    def end_contention(self, holder: Tenant) -> None:
        """Nobody waits for it any more. What it would have paid it still owes."""
        lease = holder.lease
        assert lease is not None
        cohorts = self.rules.cohorts
        cohorts.holders.tell(holder, cohorts.of[holder.id], False)
        holder.debt_ns += lease.paid_ns
        lease.contended, lease.paid_ns, lease.until = False, 0, FOREVER
        self._set_due(holder, None)
        self.effects.contend(Contend(holder.id, lease.epoch, None))

    def _expect(self, holder: Tenant, waiter: Tenant) -> None:
        for uuid in holder.gang:
            residency = self.rules.devices[uuid].residency
            leaves = min(residency.displaced(waiter.id), residency.resident_of(holder.id))
            if leaves:
                self.effects.do(Expect(holder.id, uuid, leaves))

    # -- quanta --------------------------------------------------------------------

    def begin_quantum(self, tenant: Tenant, lease: Lease) -> None:
        """All its memory is back; what it took longer than it may is of its quantum."""
        lease.restoring = False
        self.count_handoffs(lease)
        lease.since = min(self.rules.now, lease.granted_at + RESTORE_NS)
        if lease.contended and not lease.revoked:
            self._plan_end(tenant, lease)

    def count_handoffs(self, lease: Lease) -> None:
        """Its holder can begin to work: the handoffs to it are over."""
        for uuid, since in lease.handed.items():
            self.rules.devices[uuid].handoff_times.add(self.rules.now - since)
        lease.handed.clear()

    def go_on(self, tenant: Tenant, lease: Lease) -> None:
        """Some of its memory has come back."""
        lease.moved_at = self.rules.now
        if lease.contended and not lease.revoked:
            self._plan_end(tenant, lease)

    def plan_ends(self, device: Device) -> None:
        """Quanta are as long as they were not before."""
        for holder in device.holders.values():
            if holder.lease is not None and holder.lease.contended and not holder.lease.revoked:
                self._plan_end(holder, holder.lease)

    def _quantum(self, holder: Tenant, lease: Lease) -> int:
        """How long its quantum is for the waiter that it knows of."""
        rules = self.rules
        waiter = rules.tenants.get(lease.waiter) if lease.waiter is not None else None
        rules.charges.charge(holder, rules.now)
        if waiter is not None:
            rules.charges.charge(waiter, rules.now)
        return rules.quantum(holder, lease.cost_ns, waiter)

    def _plan_end(self, holder: Tenant, lease: Lease) -> None:
        """A contended lease ends with its quantum, however much of it is over, or sooner where
        its memory does not come back."""
        quantum = self._quantum(holder, lease)
        end = lease.since + quantum - lease.paid_ns
        if self.rules.turn_ns(holder) == quantum:  # so short that the drain is a part of it
            end -= min(holder.drained_ns, quantum // 2)
        if lease.restoring:
            end = min(end + RESTORE_NS, lease.moved_at + MOVE_PATIENCE_NS)
        self._set_due(holder, min(max(end, self.rules.now), lease.until))

    def _set_due(self, tenant: Tenant, when: int | None) -> None:
        lease = tenant.lease
        assert lease is not None
        lease.due = when
        self.dues.put(tenant.id, when)
        if not lease.revoked and lease.until == FOREVER:
            cohorts = self.rules.cohorts
            cohorts.holders.ends.put(tenant.id, cohorts.of[tenant.id], when)

    # -- its end -------------------------------------------------------------------

    def revoke(self, tenant: Tenant) -> None:
        lease = tenant.lease
        assert lease is not None
        drain_ns = self.rules.drain_ns
        lease.revoked, lease.revoked_at = True, self.rules.now
        cohorts = self.rules.cohorts
        cohorts.holders.revoke(tenant, cohorts.of[tenant.id])
        self._set_due(tenant, self.rules.now + drain_ns)
        self.effects.do(Revoke(tenant.id, lease.epoch, drain_ns))

    def pass_over(self, holder: Tenant) -> None:
        """It cannot give back what others wait for: they have it, and it hears of it later.
        It has forfeited nothing: no work of it is under way."""
        lease = holder.lease
        assert lease is not None
        if not lease.revoked:
            self.revoke(holder)
        self.end(holder)
        self.effects.do(PassedOver(holder.id, lease.epoch))

    def pass_deadlines(self) -> None:
        while (tenant := self.dues.pop(self.rules.now)) is not None:
            self._pass_due(self.rules.tenants[tenant])

    def _pass_due(self, tenant: Tenant) -> None:
        lease = tenant.lease
        assert lease is not None
        if not lease.revoked:
            self.revoke(tenant)
        elif tenant.parked and not self._is_awaited(tenant):
            self._set_due(tenant, self.rules.now + self.rules.drain_ns)
        elif lease.overrun_at is None:
            cohort = self.rules.cohorts.of[tenant.id]
            self.effects.changed |= cohort.mask
            self.rules.cohorts.holders.overrun(tenant, cohort)
            lease.overrun_at = lease.due
            self._set_due(tenant, self.rules.now + self.rules.drain_ns)
            for uuid in tenant.gang:
                tenant.usage[uuid].overruns += 1
            self.effects.do(Overrun(tenant.id, lease.epoch))
        else:
            tenant.forfeited[lease.epoch] = lease.overrun_at
            self.end(tenant)
            self.effects.do(Forfeit(tenant.id, lease.epoch))

    def _is_awaited(self, holder: Tenant) -> bool:
        """Somebody waits for what it holds. Who is parked and hinders nobody may take its time."""
        cohorts = self.rules.cohorts
        cohort = cohorts.of[holder.id]
        waits = any(c.heeds != FREE for c in cohorts.in_line(cohort.mask))
        return waits or cohort.mask & self.rules.drained_mask != 0

    # -- side by side --------------------------------------------------------------

    def separate(self, device: Device) -> None:
        """Holders that may no longer run side by side: the first stays, the others go."""
        cohorts = self.rules.cohorts
        of = [c for c in cohorts.holders.on(cohorts.bit[device.uuid]) if c.heeds != FREE]
        if all(cohort.heeds != ALONE for cohort in of):
            return
        there = [t for cohort in of for t in (*cohort.calm.values(), *cohort.told.values())]
        if len(there) < 2:
            return
        there.sort(key=lambda t: t.lease.epoch if t.lease else 0)
        stays = there[0]
        all_share = self.rules.can_share(stays)
        for tenant in there[1:]:
            if all_share and self.rules.can_share(tenant):
                continue
            assert stays.lease is not None
            stays.lease.since = self.rules.now
            if not device.fits:
                device.note_separation(self.rules.now)
            self.revoke(tenant)
