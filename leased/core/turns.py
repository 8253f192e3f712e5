"""Whose turn it is, and who may have the devices until those before it can.

Waiters are looked at in their order. One that competes with nobody before it is at
the front; the others stand behind somebody. Who is at the front and finds its
devices free is granted. Who stands behind somebody and finds them free may fill
the gap until those at the front can have them (Slurm calls it backfill), where
that is worth a handoff.

A front has its devices when the last of the holders in its way has ended. Holders
that only fill a gap do not count for that, so what fills a gap never makes it
longer: once all the others have been told to go the gap is over, and
nobody else is let in. A holder that does not go in time opens it once more
(`late`), until it is passed over. So who is at the front waits for a quantum and
four drains at most: until a holder has overrun and until it is passed over, and
the same for who was let in meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.core.cohort import ALONE, FREE, SHARE, Cohort, in_the_way
from leased.core.cohorts import PRICED
from leased.core.line import Place
from leased.core.rules import BACKFILL_NS, Rules
from leased.core.state import FOREVER, Tenant


@dataclass
class Front:
    """A waiter at the front, and what is known of the gap before its turn, which ends at
    `until`."""

    tenant: Tenant
    late: int | None = None
    until: int = 0


@dataclass
class Look:
    """One look along the line. fronts: those that have been passed by. shut: as bits the devices
    whose gap is too short, by what they heed for whom it is."""

    shut: list[int] = field(default_factory=lambda: [0, 0, 0])
    fronts: list[Front] = field(default_factory=list)


class Turns:
    """Asked after every change, until there is nobody to grant."""

    def __init__(self, rules: Rules):
        self.rules = rules
        self.fronts: dict[int, Front] = {}  # by tenant

    def next(self, mask: int) -> tuple[Tenant, int] | None:
        """Who of those who wait for these devices is granted next, and until when it may hold
        them without holding up those before it; None: nobody is."""
        first = self.rules.cohorts.next_at_once(mask)
        if first is not None and first.first is not None:
            return first.first, FOREVER
        able = self.rules.cohorts.able(mask)
        if not able:
            return None
        look = Look()
        found = self._walk(able, mask, look)
        if found is None:
            self._forget_others(mask, look.fronts)
        return found

    def _walk(self, able: dict[int, Cohort], mask: int, look: Look) -> tuple[Tenant, int] | None:
        """Along the line for these devices, as far as the last of those in it whose devices are
        free for them, which `able` has, or the first of these whose turn it is."""
        fronts, its_turn = self._leaders(able, mask)
        before = iter(fronts)
        if fronts:  # whoever is first in the line is behind nobody
            self._add_front(next(before), look)
        left = [cohort for cohort in able.values() if not cohort.mask & look.shut[cohort.heeds]]
        front = next(before, None)
        for cohort in sorted(left, key=_place):
            if its_turn is not None and cohort.place >= its_turn.place:
                break
            while front is not None and front.place < cohort.place:
                self._add_front(front, look)
                front = next(before, None)
            found = self._judge(cohort, look)
            if found is not None:
                return found
        while front is not None:
            self._add_front(front, look)
            front = next(before, None)
        if its_turn is None or its_turn.first is None:
            return None
        return its_turn.first, FOREVER

    def _leaders(self, able: dict[int, Cohort], mask: int) -> tuple[list[Cohort], Cohort | None]:
        """Those behind nobody that wait for somebody, and the first behind nobody that does not,
        before whom they stand; None: each that does not is behind somebody."""
        fronts: list[Cohort] = []
        free = min((c for c in able.values() if c.heeds == FREE), key=_place, default=None)
        last = max([c.place for c in able.values()]) if free is None else free.place
        for cohort in self.rules.cohorts.queued.leading(mask):
            if cohort.place > last:
                break
            if cohort.number in able:
                return fronts, cohort
            fronts.append(cohort)
        return fronts, free

    def _judge(self, cohort: Cohort, look: Look) -> tuple[Tenant, int] | None:
        """Its devices are free for it, and it is behind somebody. Who of it is granted for as
        long as the gap is, if anybody?"""
        if cohort.mask & look.shut[cohort.heeds]:
            return None
        until = self.gap(cohort, look.fronts)
        if until == FOREVER:
            assert cohort.first is not None
            return cohort.first, until
        return self._worth(cohort, until)

    def _worth(self, cohort: Cohort, until: int) -> tuple[Tenant, int] | None:
        """The first of the cohort for whom a lease for so long is worth the handoff."""
        devices = self.rules.devices
        version = sum(devices[uuid].residency.version for uuid in cohort.gang)
        if cohort.priced and cohort.priced[0] == version and until <= cohort.priced[1]:
            return None
        for _, tenant in cohort.waiting.entries[:PRICED]:
            if self.rules.is_worth(tenant, until - self.rules.now):
                return tenant, until
        cohort.priced = version, until
        return None

    # -- fronts -----------------------------------------------------------------------

    def _add_front(self, cohort: Cohort, look: Look) -> None:
        assert cohort.first is not None
        front = self.fronts.setdefault(cohort.first.id, Front(cohort.first))
        front.until = self._begins(front, cohort)
        look.fronts.append(front)
        if front.until - self.rules.now < BACKFILL_NS:
            look.shut[ALONE] |= cohort.mask
            look.shut[SHARE] |= cohort.mask if cohort.heeds == ALONE else 0

    def _begins(self, front: Front, cohort: Cohort) -> int:
        """When those in its way will have ended, drains aside."""
        now = self.rules.now
        last = self.rules.cohorts.ends.last(cohort)
        if last is not None:  # also again: the site's lock or its policy has put one in its way
            front.late = None
            return max(now, last)
        if front.late is None:
            front.late = self._passed_over_at(cohort)
        return max(now, front.late or now)

    def _passed_over_at(self, cohort: Cohort) -> int | None:
        """When a holder that has overrun will lose its devices; None: none has."""
        of = self.rules.cohorts.of
        dues = [
            holder.lease.due
            for holder in self.rules.cohorts.overdue.values()
            if holder.lease and holder.lease.due and in_the_way(of[holder.id], cohort)
        ]
        return max(dues, default=None)

    def _forget_others(self, mask: int, fronts: list[Front]) -> None:
        """All who wait for these devices have been looked at, and only these are at the front."""
        if len(self.fronts) > len(fronts):
            kept = {front.tenant.id for front in fronts}
            of = self.rules.cohorts.of
            for tenant in [n for n in self.fronts if n not in kept and of[n].mask & mask]:
                del self.fronts[tenant]

    def forget(self, tenant: int) -> None:
        """It does not wait any more."""
        self.fronts.pop(tenant, None)

    def free_until(self, tenant: Tenant) -> int:
        """How long it may hold its gang without holding up those who came before it."""
        place = tenant.place or ()
        fronts = [f for f in self.fronts.values() if f.tenant.place and f.tenant.place < place]
        return self.gap(self.rules.cohorts.of[tenant.id], fronts)

    def gap(self, cohort: Cohort, fronts: list[Front]) -> int:
        """When the first of these begins whom one of the cohort would be in the way of."""
        until = FOREVER
        for front in fronts:
            other = self.rules.cohorts.of[front.tenant.id]
            if in_the_way(other, cohort):
                until = min(until, front.until)
        return until


def _place(cohort: Cohort) -> Place:
    return cohort.place
