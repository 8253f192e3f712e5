"""The waiters, and the line of those that could run now, at their places."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from leased.core import classes, orders
from leased.core.actions import Answer, Effects
from leased.core.deadlines import Deadlines
from leased.core.memory import Memory
from leased.core.rules import NEW_CONTROLS, Rules
from leased.core.short_turns import ShortTurns
from leased.core.state import ALONE, FREE, Tenant
from leased.memory.share import Place

ARRIVALS = 1 << 64  # more than there will ever be


class Waiters:
    """wakes: when a waiter's policy is to be asked about it again. hurry: called when waiters may
    begin to hurry."""

    def __init__(
        self, rules: Rules, effects: Effects, memory: Memory, hurry: Callable[[int], None]
    ):
        self.rules = rules
        self.effects = effects
        self.memory = memory
        self.arrivals = 0
        self.wakes: Deadlines[int] = Deadlines(self.pass_wakes)
        self.short_turns = ShortTurns(rules, hurry)

    def begin(self, tenant: Tenant) -> None:
        """The tenant waits for its gang from now on."""
        now = self.rules.now
        tenant.waiting, tenant.waits_since, tenant.asked_at = True, now, now
        if not tenant.has_asked:
            tenant.has_asked = True
            self.rules.news |= NEW_CONTROLS
        if tenant.kept or tenant.short_left:
            self.short_turns.asks(tenant, now)
        self.arrive(tenant)
        if self.rules.charges.on and self.rules.policies.of(tenant).shares:
            self._bar(tenant)
        self.sort(tenant)

    def end(self, tenant: Tenant, *, holds: bool = False) -> None:
        """The tenant waits no more. holds: since it is about to hold its gang, of which its memory
        hears then."""
        if tenant.waiting:
            tenant.wait_ends(self.rules.now)
            if self.short_turns.asked:
                self.short_turns.forget(tenant)
            if tenant.place is not None:
                self.leave_line(tenant, holds=holds)
            if tenant.barred_until is not None:
                tenant.barred_until = None
                self.wakes.put(tenant.id, None)

    def sort(self, tenant: Tenant) -> None:
        """Put a waiter into the line if it can run now, or take it out if it cannot. A waiter
        that could not run before comes last."""
        if tenant.waiting and tenant.ordered in (orders.READY, orders.HOLD):
            self._look_if_able(tenant)
        lines_up = tenant.waiting and not self.rules.withheld(tenant)
        if lines_up == (tenant.place is not None):
            return
        if lines_up:
            if tenant.arrival != self.arrivals:
                self.arrive(tenant)
            self.line_up(tenant)
        else:
            self.leave_line(tenant)

    def line_up_again(self, holder: Tenant) -> None:
        """Others that were ready for a device of this holder are in the line again, at their old
        places: what it has is no loan, so its quantum has to end for them."""
        for tenant in self.rules.tenants.values():
            if tenant.ordered == orders.READY and tenant.mask & holder.mask:
                tenant.ordered = orders.LINE
                self.line_up(tenant)

    def _look_if_able(self, tenant: Tenant) -> None:
        """Its turn has come, but it may be unable to run by now: then it lines up again."""
        ordered, tenant.ordered = tenant.ordered, orders.LINE
        if self.rules.withheld(tenant):
            self.effects.do(Answer(tenant.id, orders.UNREADY))
        else:
            tenant.ordered = ordered

    def let_in(self, before: Tenant) -> None:
        """Let waiters into the line that share devices with this tenant and for which room has
        come. They come before it, in the order in which they began to wait."""
        tenants = self.rules.tenants
        found: list[tuple[int, int, Tenant]] = []
        for number in self.memory.affected:
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

    def pass_wakes(self, now: int) -> None:
        """Ask the policies of waiters again for which that is due."""
        while (waiter := self.wakes.pop(now)) is not None:
            self.look_again(self.rules.tenants[waiter])

    def _bar(self, waiter: Tenant) -> None:
        """Its policy may bar it from its devices for a while. It still wants them, so this time
        is charged as if it stood in the line."""
        charges, now = self.rules.charges, self.rules.now
        policy = self.rules.policies.of(waiter)
        charges.charge(waiter, now)
        if waiter.barred:
            charges.end(waiter, now)
        until = policy.barred_until(self.rules, waiter) if waiter.heeds == ALONE else None
        waiter.barred_until = until if until is not None and until > now else None
        self.wakes.put(waiter.id, waiter.barred_until)
        if waiter.barred:
            charges.begin(waiter, False, now)

    def _plan_wake(self, waiter: Tenant) -> None:
        when = self.rules.policies.of(waiter).wake_at(self.rules, waiter)
        later = when is not None and when > self.rules.now
        self.wakes.put(waiter.id, when if later else None)

    def hurry(self, tenant: Tenant) -> None:
        """The tenant, which is in the line, is the first of all from now on."""
        self._move(tenant, self._placed(tenant))

    def let_overdue_by(self, mask: int) -> None:
        """Put those that are overdue among the online ones that stand before them in the line for
        these devices."""
        for device in self.rules.on(mask):
            ahead = [tenant for place, tenant in device.line if place < classes.AHEAD]
            if not any(tenant.urgent for tenant in ahead):
                continue
            for _, tenant in device.line[len(ahead) :]:
                if classes.is_overdue(tenant, self.rules.asked_ns(tenant), self.rules.now):
                    self._move(tenant, classes.place(self._usual(tenant)))

    def mix(self) -> None:
        """Gangs or policies have changed, so some waiters may be served in another order: by the
        policy instead of who came first, or the other way round."""
        rules = self.rules
        before, rules.mixed_mask = rules.mixed_mask, rules.policies.mixed(rules.connected)
        changed = before ^ rules.mixed_mask
        for tenant in rules.tenants.values() if changed else ():
            if tenant.place is not None and tenant.mask & changed:
                self._move(tenant, self._placed(tenant))

    def arrive(self, tenant: Tenant) -> None:
        """The tenant is now the last to have come of all that wait for its devices, or have waited
        for them."""
        self.arrivals += 1
        tenant.arrival = self.arrivals

    def _place(self, tenant: Tenant) -> Place:
        tenant.order = self.rules.policies.of(tenant).order(self.rules, tenant)
        return self._placed(tenant)

    def _placed(self, tenant: Tenant) -> Place:
        """The usual place, unless a short turn, an order or its class says another."""
        usual = self._usual(tenant)
        if tenant.hurries or tenant.kept:
            usual = self.short_turns.place(tenant, usual)
        if tenant.ordered == orders.HOLD:
            return 2 * classes.FIRST + usual
        return classes.place(usual) if tenant.urgent else usual

    def _usual(self, tenant: Tenant) -> Place:
        """The place that its policy gave it. Where gangs connect devices of several policies, it
        is the order of coming, since places of different policies cannot be compared."""
        mixed = tenant.mask & self.rules.mixed_mask
        return (tenant.arrival if mixed else tenant.order) * ARRIVALS + tenant.arrival

    # -- the line ---------------------------------------------------------------------

    def line_up(self, tenant: Tenant) -> None:
        """Put the tenant into the line, at the place that its policy gives it."""
        if self.rules.charges.on:
            self.rules.charges.begin(tenant, False, self.rules.now)
        self._enter(tenant, self._place(tenant))
        if self.short_turns.asked:
            self.short_turns.lines_up(tenant, self.rules.now)
        if self.rules.charges.on and self.rules.policies.of(tenant).shares:
            self._plan_wake(tenant)
        self._tell(tenant)

    def leave_line(self, tenant: Tenant, *, holds: bool = False) -> None:
        if self.rules.charges.on:
            self.rules.charges.end(tenant, self.rules.now)
        self._leave(tenant)
        if tenant.hurries or tenant.kept:
            self.short_turns.leaves_line(tenant, self.rules.now)
        if self.wakes.heap and tenant.barred_until is None:
            self.wakes.put(tenant.id, None)
        if holds:
            self.effects.changed |= tenant.mask
        else:
            self._tell(tenant)

    def _move(self, tenant: Tenant, place: Place) -> None:
        if place != tenant.place:
            self._leave(tenant)
            self._enter(tenant, place)
            self._tell(tenant)

    def _enter(self, tenant: Tenant, place: Place) -> None:
        tenant.place = place
        self.rules.in_line += 1
        if tenant.ordered == orders.LINE:
            self.rules.lined[tenant.id] = tenant
        if tenant.heeds == FREE:
            self.rules.free[tenant.id] = tenant
            return
        if len(tenant.devices) > 1:
            self.rules.gangs_in_line[tenant.id] = tenant.mask
        for device in tenant.devices:
            insort(device.line, (place, tenant))

    def _leave(self, tenant: Tenant) -> None:
        place, tenant.place, tenant.late = tenant.place, None, None
        self.rules.in_line -= 1
        if tenant.ordered:
            self.rules.lined.pop(tenant.id, None)
        if tenant.heeds == FREE:
            del self.rules.free[tenant.id]
            return
        self.rules.gangs_in_line.pop(tenant.id, None)
        assert place is not None
        for device in tenant.devices:
            line = device.line
            del line[bisect_left(line, (place, tenant))]

    def heed(self, tenant: Tenant, heeds: int) -> None:
        """The tenant begins or ceases to heed locks, or to run beside others."""
        rules, now, before = self.rules, self.rules.now, tenant.heeds
        place, held = tenant.place, tenant.lease is not None
        if place is not None:
            self._leave(tenant)
        if heeds == FREE:
            rules.charges.forget(tenant, now)
        for device in tenant.devices if held else ():
            device.clock.count(now, -1, before)
            device.clock.count(now, 1, heeds)
        tenant.heeds = heeds
        if held:
            rules.locked_mask |= tenant.mask if heeds else 0
            rules.alone_mask |= tenant.mask if heeds == ALONE else 0
            rules.count_holders(tenant.devices)
        if place is not None:
            self._enter(tenant, place)
        if before == FREE and (held or place is not None):
            rules.charges.begin(tenant, held, now)
        self.effects.changed |= tenant.mask

    def heed_again(self, tenants: Iterable[Tenant]) -> None:
        """Devices of these tenants are locked or shared in another way, or the work of others
        there can be divided."""
        rules, found = self.rules, list(tenants)
        changed = [(t, heeds) for t in found if (heeds := rules.heeds(t)) != t.heeds]
        for tenant, heeds in changed:
            self.heed(tenant, heeds)
        if changed:
            rules.charges.slice_again(rules.now)
            self.effects.unsettled = True
        for tenant, _ in changed:
            if tenant.barred:
                self.look_again(tenant)

    def _tell(self, tenant: Tenant) -> None:
        where = self.rules.where
        if where.full or tenant.id in where.of:
            self.memory.wait(tenant, tenant.place)
        self.effects.changed |= tenant.mask
