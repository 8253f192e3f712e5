"""Tells holders that a waiter needs their devices, and when none does any more."""

from __future__ import annotations

from leased.core.actions import Contend, Expect
from leased.core.cohort import ALONE, Cohort
from leased.core.effects import Effects
from leased.core.quanta import Quanta
from leased.core.rules import Rules
from leased.core.stages import Stages
from leased.core.state import FOREVER, Tenant

IDLE_FLOOR_NS = 2_000_000


class Contention:
    """Tells the holders, and plans the ends of their leases."""

    def __init__(self, rules: Rules, effects: Effects, quanta: Quanta, stages: Stages):
        self.rules = rules
        self.effects = effects
        self.quanta = quanta
        self.stages = stages

    def tell(self, holding: list[Cohort]) -> None:
        """Tell the holders of these cohorts that a waiter in the line needs their devices, or that
        none does any more, where they have not been told so yet."""
        drained, queued = self.rules.drained_mask, self.rules.cohorts.queued
        for cohort in holding:
            if self.rules.cohorts.holders.is_settled(cohort) and not self.rules.cheaper(cohort):
                continue
            first = queued.first_against(cohort)
            waiter = first.first if first else None
            self.rules.cohorts.holders.watch(cohort, first)
            if waiter is not None or cohort.mask & drained:
                if cohort.calm or cohort.most_cost or cohort.waiter is not waiter:
                    self._tell_cohort(cohort, waiter)
            else:
                for holder in list(cohort.told.values()):
                    self.end_contention(holder)
            self.rules.cohorts.holders.settle(cohort)

    def _tell_cohort(self, cohort: Cohort, waiter: Tenant | None) -> None:
        """waiter: the first that needs its devices; None: the site has drained one of them."""
        if waiter and self.rules.costs_less(waiter, cohort.most_cost / 2):
            self._contend_again(cohort, waiter, self.rules.handoff_ns(waiter))
        elif waiter and waiter is not cohort.waiter:
            self._plan_again(cohort, waiter)
        cohort.waiter, cohort.dear = waiter, None
        for holder in list(cohort.told.values()):
            if waiter and holder.lease and holder.lease.for_limit:
                self._contend_anew(holder, waiter, FOREVER)
        for holder in list(cohort.calm.values()):
            if holder.frozen:
                self.stages.pass_over(holder)
                continue
            self.contend(holder, waiter, FOREVER)
            if waiter and holder.swaps:
                self._expect(holder, waiter)

    def _plan_again(self, cohort: Cohort, waiter: Tenant) -> None:
        """Another waiter is first now, and its policy may want another end of the leases."""
        for holder in list(cohort.told.values()):
            lease = holder.lease
            assert lease is not None
            lease.waiter = waiter.id
            self.quanta.plan_end(holder, lease)

    def _contend_again(self, cohort: Cohort, waiter: Tenant, cost: int) -> None:
        """Another waiter is first now, whose handoff costs less, so quanta need not be as long."""
        self.rules.cohorts.holders.set_cost(cohort, 2 * cost)
        for holder in list(cohort.told.values()):
            lease = holder.lease
            assert lease is not None
            if 2 * cost < lease.cost_ns:
                self._contend_anew(holder, waiter, lease.until)

    def _contend_anew(self, holder: Tenant, waiter: Tenant | None, until: int) -> None:
        """The holder has been told already, but for another waiter."""
        assert holder.lease is not None
        holder.debt_ns += holder.lease.paid_ns
        self.contend(holder, waiter, until)

    def limit(self, holder: Tenant) -> None:
        """If its policy wants that, the holder's quantum ends even if no tenant waits for it."""
        if self._is_limited(holder):
            self.contend(holder, None, FOREVER)
            self._bound_by_limit(holder)

    def _is_limited(self, holder: Tenant) -> bool:
        alone = self.rules.cohorts.of[holder.id].heeds == ALONE
        return alone and self.rules.policies.of(holder).is_limited(holder)

    def _bound_by_limit(self, holder: Tenant) -> None:
        """Whether it was told only because of its limit, so that any waiter is news to it."""
        assert holder.lease is not None
        holder.lease.for_limit = True
        self.rules.cohorts.of[holder.id].waiter = None

    def contend(self, holder: Tenant, waiter: Tenant | None, until: int) -> None:
        """Tell a holder that this waiter needs its devices. None: no waiter does yet, but the
        holder fills a gap and must be gone by `until`."""
        lease, cohort = holder.lease, self.rules.cohorts.of[holder.id]
        assert lease is not None
        cost = self.rules.handoff_ns(waiter) if waiter else 0
        patience = cost
        if waiter:
            policy = self.rules.policies.of(holder)
            patience = policy.patience(self.rules, holder, waiter, cost)
        holders = self.rules.cohorts.holders
        holders.tell(holder, cohort, True)
        holders.set_cost(cohort, max(cohort.most_cost, cost))
        lease.contended, lease.cost_ns, lease.until = True, cost, until
        lease.for_limit = False
        lease.waiter = waiter.id if waiter else None
        lease.paid_ns = 0
        if holder.debt_ns:
            lease.paid_ns = min(holder.debt_ns, self.quanta.quantum(holder, lease) // 2)
            holder.debt_ns -= lease.paid_ns
        self.effects.contend(Contend(holder.id, lease.epoch, max(patience, IDLE_FLOOR_NS)))
        self.quanta.plan_end(holder, lease)
        if lease.due is not None and lease.due <= self.rules.now:
            self.stages.revoke(holder)

    def end_contention(self, holder: Tenant) -> None:
        """No waiter needs its devices any more. The debt that its quantum was to pay stays."""
        lease = holder.lease
        assert lease is not None
        if self._is_limited(holder):
            if not lease.for_limit:
                self._contend_anew(holder, None, FOREVER)
                self._bound_by_limit(holder)
            return
        cohorts = self.rules.cohorts
        cohorts.holders.tell(holder, cohorts.of[holder.id], False)
        holder.debt_ns += lease.paid_ns
        lease.contended, lease.paid_ns, lease.until = False, 0, FOREVER
        self.quanta.set_due(holder, None)
        self.effects.contend(Contend(holder.id, lease.epoch, None))

    def _expect(self, holder: Tenant, waiter: Tenant) -> None:
        for uuid in holder.gang:
            residency = self.rules.devices[uuid].residency
            leaves = min(residency.displaced(waiter.id), residency.resident_of(holder.id))
            if leaves:
                self.effects.do(Expect(holder.id, uuid, leaves))
