"""The waiters, and the line of those that could run now, at their places."""

from __future__ import annotations

from collections.abc import Callable

from leased.core.cohort import ALONE, FREE
from leased.core.deadlines import Deadlines
from leased.core.effects import Effects
from leased.core.line import Place, place_of
from leased.core.memory import Memory
from leased.core.rules import Rules
from leased.core.state import Tenant


class Waiters:
    """gone: called with a tenant that has left the line. wakes: when a waiter's policy is to be
    asked about it again."""

    def __init__(self, rules: Rules, effects: Effects, memory: Memory, gone: Callable[[int], None]):
        self.rules = rules
        self.effects = effects
        self.memory = memory
        self.gone = gone
        self.arrivals = 0
        self.wakes: Deadlines[int] = Deadlines()

    def begin(self, tenant: Tenant) -> None:
        """The tenant waits for its gang from now on."""
        now = self.rules.now
        tenant.waiting, tenant.waits_since, tenant.asked_at = True, now, now
        self.rules.asks(tenant)
        self.rules.cohorts.of[tenant.id].waiters[tenant.id] = tenant
        self._arrive(tenant)
        self._bar(tenant)
        self.sort(tenant)

    def end(self, tenant: Tenant) -> None:
        if tenant.waiting:
            tenant.wait_ends(self.rules.now)
            tenant.barred_until = None
            self.wakes.put(tenant.id, None)
            del self.rules.cohorts.of[tenant.id].waiters[tenant.id]
            self.sort(tenant)

    def sort(self, tenant: Tenant) -> None:
        """Put a waiter into the line if it can run now, or take it out if it cannot. A waiter
        that could not run before comes last."""
        lines_up = tenant.waiting and not self.rules.withheld(tenant)
        if lines_up == (tenant.place is not None):
            return
        if lines_up:
            if tenant.arrival != self.arrivals:
                self._arrive(tenant)
            self.line_up(tenant)
        else:
            self.leave_line(tenant)

    def let_in(self, before: Tenant) -> None:
        """Let waiters into the line that share devices with this tenant and for which room has
        come. They come before it, in the order in which they began to wait."""
        tenants = self.rules.tenants
        found: list[tuple[int, int, Tenant]] = []
        for number in self.memory.fitting.affected:
            tenant = tenants.get(number)
            if tenant is not None and tenant.waiting and tenant is not before:
                shared = [n for n, uuid in enumerate(before.gang) if uuid in tenant.gang]
                if shared:
                    found.append((shared[0], tenant.arrival, tenant))
        for _, _, tenant in sorted(found):
            self.sort(tenant)

    def place_again(self, tenant: Tenant) -> None:
        """Ask the tenant's policy for its place again."""
        if tenant.place is not None:
            self.rules.charges.charge(tenant, self.rules.now)
            self._move(tenant, self._place(tenant))
            self._plan_wake(tenant)

    def look_again(self, waiter: Tenant) -> None:
        """Ask the waiter's policy again whether it may have its devices, and at which place."""
        if waiter.barred:
            self._bar(waiter)
            self.sort(waiter)
        self.place_again(waiter)

    def pass_wakes(self) -> None:
        """Ask the policies of waiters again for which that is due."""
        while (waiter := self.wakes.pop(self.rules.now)) is not None:
            self.look_again(self.rules.tenants[waiter])

    def _bar(self, waiter: Tenant) -> None:
        """Its policy may bar it from its devices for a while. It still wants them, so this time
        is charged as if it stood in the line."""
        charges = self.rules.charges
        charges.charge(waiter, self.rules.now)
        if waiter.barred:
            charges.end(waiter, self.rules.now)
        alone = self.rules.cohorts.of[waiter.id].heeds == ALONE
        policy = self.rules.policies.of(waiter)
        until = policy.barred_until(self.rules, waiter) if alone else None
        waiter.barred_until = until if until is not None and until > self.rules.now else None
        self.wakes.put(waiter.id, waiter.barred_until)
        if waiter.barred and self.rules.cohorts.of[waiter.id].heeds != FREE:
            charges.begin(waiter, False, self.rules.now)

    def _plan_wake(self, waiter: Tenant) -> None:
        when = self.rules.policies.of(waiter).wake_at(self.rules, waiter)
        later = when is not None and when > self.rules.now
        self.wakes.put(waiter.id, when if later else None)

    def mix(self) -> None:
        """Gangs or policies have changed, so some waiters may be served in another order."""
        changed = self.rules.mix()
        for uuid, bit in self.rules.cohorts.bit.items() if changed else ():
            if bit & changed:
                for tenant in self.rules.devices[uuid].queue.values():
                    if tenant.place is not None:
                        self._move(tenant, self._placed(tenant))

    def _move(self, tenant: Tenant, place: Place) -> None:
        if place != tenant.place:
            self.rules.cohorts.move(tenant, place)
            self.gone(tenant.id)
            self._tell(tenant)

    def _arrive(self, tenant: Tenant) -> None:
        """The tenant is now the last to have come of all that wait for its devices."""
        self.arrivals += 1
        tenant.arrival = self.arrivals

    def _place(self, tenant: Tenant) -> Place:
        tenant.order = self.rules.policies.of(tenant).order(self.rules, tenant)
        return self._placed(tenant)

    def _placed(self, tenant: Tenant) -> Place:
        """The place that its policy gave it. Where gangs connect devices of several policies, it
        is the order of coming, since places of different policies cannot be compared."""
        mixed = self.rules.cohorts.of[tenant.id].mask & self.rules.mixed_mask
        return place_of(tenant.arrival if mixed else tenant.order, tenant.arrival)

    def line_up(self, tenant: Tenant) -> None:
        """Put the tenant into the line, at the place that its policy gives it."""
        cohort, charges = self.rules.cohorts.of[tenant.id], self.rules.charges
        if cohort.heeds != FREE:
            charges.begin(tenant, False, self.rules.now)
        tenant.place = self._place(tenant)
        self.rules.cohorts.line_up(tenant)
        self._plan_wake(tenant)
        self._tell(tenant)

    def leave_line(self, tenant: Tenant) -> None:
        self.rules.charges.end(tenant, self.rules.now)
        self.rules.cohorts.leave_line(tenant)
        self.gone(tenant.id)
        tenant.place = None
        if not tenant.barred:
            self.wakes.put(tenant.id, None)
        self._tell(tenant)

    def _tell(self, tenant: Tenant) -> None:
        self.memory.wait(tenant, tenant.place)
        self.effects.changed |= self.rules.cohorts.of[tenant.id].mask
