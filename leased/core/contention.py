"""Tells holders that a waiter needs their devices, and when none does any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from leased.core import classes, orders
from leased.core.actions import Contend, Effects, Expect
from leased.core.rules import Rules
from leased.core.short_turns import PATIENCE_NS
from leased.core.stages import Stages
from leased.core.state import ALONE, FOREVER, FREE, Lease, Tenant
from leased.memory.residency import handoff_ns
from leased.memory.share import Place

IDLE_FLOOR_NS = 2_000_000


class Contention:
    """Tells the holders, and plans the ends of their leases."""

    def __init__(self, rules: Rules, effects: Effects, stages: Stages):
        self.rules = rules
        self.effects = effects
        self.stages = stages

    def tell(self, mask: int, moved: int) -> None:
        """Tell the holders of these devices that a waiter in the line needs their devices, or that
        none does any more, where they have not been told so yet. moved: where memory is elsewhere
        than when they were last told."""
        for device in self.rules.on(mask):
            for holder in list(device.holders.values()):
                lease, there = holder.lease, holder.mask & mask
                if lease is None or lease.revoked or there & -there != device.bit:
                    continue  # a gang is told once
                self._tell(holder, lease, moved)

    def _tell(self, holder: Tenant, lease: Lease, moved: int) -> None:
        waiter = self._first_against(holder)
        if waiter is None and not holder.mask & self.rules.drained_mask:
            if lease.contended:
                self.end_contention(holder)
        elif lease.contended:
            if waiter is not None:
                self._tell_again(holder, lease, waiter, moved)
        elif holder.frozen:
            self.stages.pass_over(holder)
        else:
            self.contend(holder, waiter, FOREVER)
            if waiter is not None and holder.swaps:
                self._expect(holder, waiter)

    def _first_against(self, holder: Tenant) -> Tenant | None:
        """The first in the line that this holder is in the way of."""
        if holder.heeds == FREE:
            return None
        if len(holder.devices) == 1:
            found = holder.devices[0].first_against(holder)
        else:
            each = (device.first_against(holder) for device in holder.devices)
            found = min([entry for entry in each if entry is not None], default=None)
        if found and holder.online and found[1].offline:
            found = min(self._others_against(holder), default=found)
        return found[1] if found else None

    @staticmethod
    def _others_against(holder: Tenant) -> Iterator[tuple[Place, Tenant]]:
        """Those in the line that this online holder is in the way of and that are not offline."""
        for device in holder.devices:
            for place, waiter in device.line:
                if not waiter.offline and ALONE in (holder.heeds, waiter.heeds):
                    yield place, waiter

    def _tell_again(self, holder: Tenant, lease: Lease, waiter: Tenant, moved: int) -> None:
        """The holder knows that it is contended, for a limit or for another waiter perhaps, or for
        one whose handoff costs less by now, so its quantum need not be as long."""
        if lease.for_limit:
            self._contend_anew(holder, waiter, FOREVER)
            return
        other = lease.waiter != waiter.id
        may_cost_less = lease.cost_ns and (other or waiter.mask & moved)
        if may_cost_less and self.rules.costs_less(waiter, lease.cost_ns / 2):
            self._contend_anew(holder, waiter, lease.until)
        elif other and (lease.until == FOREVER or self._at_once(holder, waiter)):
            lease.waiter = waiter.id  # else it fills a gap, and has all of it
            self._plan_end(holder, lease)
        elif holder.offline and not holder.ordered and classes.at_once(holder, waiter):
            self._plan_end(holder, lease)  # the waiter has become overdue since it was told of it

    @staticmethod
    def _at_once(holder: Tenant, waiter: Tenant) -> bool:
        """The holder goes whatever is left of its time."""
        return waiter.ordered == orders.HOLD or classes.at_once(holder, waiter)

    def hurry(self, waiter: Tenant) -> None:
        """This waiter hurries now, so the holders in its way go at once. (It may be the one for
        which they were told already.)"""
        for holder in self.rules.in_the_way(waiter):
            lease = holder.held
            if lease.contended and not lease.revoked:
                lease.waiter = waiter.id
                self.stages.plan_end(holder, lease)

    def _contend_anew(self, holder: Tenant, waiter: Tenant | None, until: int) -> None:
        """The holder has been told already, but for another waiter."""
        holder.debt_ns += holder.held.paid_ns
        self.contend(holder, waiter, until)

    def limit(self, holder: Tenant) -> None:
        """If its policy wants that, the holder's quantum ends even if no tenant waits for it."""
        if self._is_limited(holder):
            self.contend(holder, None, FOREVER)
            holder.held.for_limit = True

    def _is_limited(self, holder: Tenant) -> bool:
        limited = holder.heeds == ALONE and holder.limit < 1
        return limited and self.rules.policies.of(holder).is_limited(holder)

    def contend(self, holder: Tenant, waiter: Tenant | None, until: int) -> None:
        """Tell a holder that this waiter needs its devices. None: no waiter does yet, but the
        holder fills a gap and must be gone by `until`."""
        lease = holder.held
        cost = handoff_ns(self.rules.parts_of(waiter)) if waiter else 0
        patience = cost
        if waiter:
            policy = self.rules.policies.of(holder)
            patience = policy.patience(self.rules, holder, waiter, cost)
            if holder.online:
                patience = classes.patience(waiter, patience)
        if lease.short:
            patience = max(patience, PATIENCE_NS)
        lease.contended, lease.cost_ns, lease.until = True, cost, until
        lease.for_limit = False
        lease.waiter = waiter.id if waiter else None
        lease.paid_ns = 0
        if holder.debt_ns and not lease.short:
            lease.paid_ns = min(holder.debt_ns, self.stages.quantum(holder, lease) // 2)
            holder.debt_ns -= lease.paid_ns
        self._say(holder, lease, max(patience, IDLE_FLOOR_NS))
        self._plan_end(holder, lease)

    def _say(self, holder: Tenant, lease: Lease, idle_ns: int | None) -> None:
        """Tell the holder that others wait, or that none do; a grant to come says it too."""
        if lease.untold is None:
            self.effects.contend(Contend(holder.id, lease.epoch, idle_ns))
        else:
            lease.untold = replace(lease.untold, idle_ns=idle_ns)

    def _plan_end(self, holder: Tenant, lease: Lease) -> None:
        """It may be at once."""
        self.stages.plan_end(holder, lease)
        if lease.due is not None and lease.due <= self.rules.now:
            self.stages.end_quantum(holder)

    def end_contention(self, holder: Tenant) -> None:
        """No waiter needs its devices any more. The debt that its quantum was to pay stays."""
        lease = holder.held
        if self._is_limited(holder):
            if not lease.for_limit:
                self._contend_anew(holder, None, FOREVER)
                lease.for_limit = True
            return
        holder.debt_ns += lease.paid_ns
        lease.contended, lease.paid_ns, lease.until = False, 0, FOREVER
        self.stages.set_due(holder, lease, None)
        self._say(holder, lease, None)

    def _expect(self, holder: Tenant, waiter: Tenant) -> None:
        for uuid in holder.gang:
            residency = self.rules.devices[uuid].residency
            leaves = min(residency.displaced(waiter.id), residency.of(holder.id).resident)
            if leaves:
                self.effects.do(Expect(holder.id, uuid, leaves))
