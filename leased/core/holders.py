"""An index of the cohorts that have holders: which devices are taken, and which to tell."""

from __future__ import annotations

from collections.abc import Iterable

from leased.core.by_device import ByDevice
from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.ends import Ends
from leased.core.openings import Openings
from leased.core.state import Tenant
from leased.core.taken import Taken


class Holders:
    """Devices are bits of a number. overdue: holders that have overrun."""

    def __init__(self, bits: Iterable[int], openings: Openings):
        self.ends = Ends(bits)
        self.overdue: dict[int, Tenant] = {}
        self._openings = openings
        self._all: dict[int, Cohort] = {}  # in the order in which they began to hold
        self._locked = ByDevice()  # of them those that are not FREE,
        self._alone = ByDevice()  # and those that are ALONE
        self._held, self._held_alone = Taken(), Taken()  # by the one and by the other
        # Of those that are locked: some may not have been told what they should know, and some
        # were told of a handoff that costs something, which may cost less by now.
        self._unsettled: dict[int, Cohort] = {}
        self._costly = ByDevice()
        # For which cohort in the line holders of a cohort were told; these, and who of those whose
        # handoff costs something was told so.
        self._told_for: dict[int, Cohort] = {}
        self._awaited = ByDevice()
        self._watchers: dict[int, dict[int, Cohort]] = {}
        self._begun = 0

    # -- what changes -----------------------------------------------------------------

    def add(self, tenant: Tenant, cohort: Cohort) -> bool:
        """The tenant holds from now on. Returns whether it is the first of its cohort."""
        first = not cohort.holding
        if first:
            self._begun += 1
            cohort.begun = self._begun
            self._all[cohort.number] = cohort
            self._lock(cohort)
        cohort.holding[tenant.id] = cohort.calm[tenant.id] = tenant
        self._unsettle(cohort)
        return first

    def tell(self, tenant: Tenant, cohort: Cohort, told: bool) -> None:
        """The tenant has been told that a waiter needs its devices, or that none does any more."""
        cohort.calm.pop(tenant.id, None)
        cohort.told.pop(tenant.id, None)
        (cohort.told if told else cohort.calm)[tenant.id] = tenant
        self._unsettle(cohort)

    def settle(self, cohort: Cohort) -> None:
        """All holders of the cohort have been told what they must know."""
        self._unsettled.pop(cohort.number, None)

    def is_settled(self, cohort: Cohort) -> bool:
        return cohort.number not in self._unsettled

    def watch(self, cohort: Cohort, waiting: Cohort | None) -> None:
        """Holders of the cohort are told for the first of the one that waits from now on."""
        if self._told_for.get(cohort.number) is waiting:
            return
        self._unlist(cohort)
        self._told_for.pop(cohort.number, None)
        cohort.watched = 0
        if waiting is not None:
            cohort.watched = waiting.mask
            self._told_for[cohort.number] = waiting
            if cohort in self._costly:
                self._list(cohort)

    def set_cost(self, cohort: Cohort, cost_ns: int) -> None:
        """Holders of the cohort were told for handoffs that cost at most so much."""
        cohort.most_cost = cost_ns
        self._note_cost(cohort)

    def revoke(self, tenant: Tenant, cohort: Cohort) -> None:
        """The tenant has been told to release."""
        cohort.calm.pop(tenant.id, None)
        cohort.told.pop(tenant.id, None)
        self.ends.put(tenant.id, cohort, None)

    def overrun(self, tenant: Tenant, cohort: Cohort) -> None:
        """The tenant still holds, though it should have released."""
        self.overdue[tenant.id] = tenant
        self._openings.open(cohort.mask)

    def remove(self, tenant: Tenant, cohort: Cohort) -> bool:
        """The tenant does not hold any more. Returns whether it was the last of its cohort."""
        self.revoke(tenant, cohort)
        if self.overdue.pop(tenant.id, None):
            self._openings.open(cohort.mask)
        del cohort.holding[tenant.id]
        if cohort.holding:
            return False
        del self._all[cohort.number]
        self.watch(cohort, None)
        if self._locked.remove(cohort):
            self._unlock(cohort)
        return True

    def sort_again(self, everywhere: int) -> None:
        """Cohorts on these devices heed other modes than before, so they are sorted again."""
        self.ends.sort_again()
        cleared = self._locked, self._alone, self._unsettled, self._costly
        for index in (*cleared, self._watchers, self._awaited):
            index.clear()
        self._held, self._held_alone = Taken(), Taken()
        for cohort in self._all.values():
            self._lock(cohort)
            self._unsettle(cohort)
        self._openings.open(everywhere)

    def _lock(self, cohort: Cohort) -> None:
        """The cohort has holders now, or heeds another mode."""
        if cohort.heeds != FREE:
            self._locked.add(cohort)
            self._held.add(cohort.mask)
            self._note_cost(cohort)
        if cohort.heeds == ALONE:
            self._alone.add(cohort)
            self._held_alone.add(cohort.mask)

    def _unlock(self, cohort: Cohort) -> None:
        self._unsettled.pop(cohort.number, None)
        self._costly.remove(cohort)
        before = self._held.mask, self._held_alone.mask
        self._held.remove(cohort.mask)
        if self._alone.remove(cohort):
            self._held_alone.remove(cohort.mask)
        if before != (self._held.mask, self._held_alone.mask):
            self._openings.open(cohort.mask)

    def _unsettle(self, cohort: Cohort) -> None:
        if cohort.heeds != FREE:
            self._unsettled[cohort.number] = cohort

    def _note_cost(self, cohort: Cohort) -> None:
        if cohort.most_cost and cohort in self._locked:
            self._costly.add(cohort)
            self._list(cohort)
        else:
            self._costly.remove(cohort)
            self._unlist(cohort)

    def _list(self, cohort: Cohort) -> None:
        """The cohort, whose handoff costs something, is found by the one that it was told for."""
        waiting = self._told_for.get(cohort.number)
        if waiting is not None:
            self._watchers.setdefault(waiting.number, {})[cohort.number] = cohort
            self._awaited.add(waiting)

    def _unlist(self, cohort: Cohort) -> None:
        waiting = self._told_for.get(cohort.number)
        watchers = self._watchers.get(waiting.number) if waiting else None
        if waiting and watchers and watchers.pop(cohort.number, None) and not watchers:
            del self._watchers[waiting.number]
            self._awaited.remove(waiting)

    # -- questions --------------------------------------------------------------------

    def taken(self, heeds: int) -> int:
        """Devices that are not free for cohorts that heed this mode."""
        if heeds == FREE:
            return 0
        return self._held.mask if heeds == ALONE else self._held_alone.mask

    def locked(self, mask: int) -> list[Cohort]:
        """The cohorts with holders of one of these devices that are not FREE."""
        return _sorted(self._locked.on(mask))

    def alone(self, mask: int) -> list[Cohort]:
        """The ALONE cohorts with holders of one of these devices."""
        return _sorted(self._alone.on(mask))

    def against(self, cohort: Cohort) -> list[Cohort]:
        """The cohorts whose holders must release before one of this cohort can have its gang."""
        if cohort.heeds == FREE:
            return []
        return self.locked(cohort.mask) if cohort.heeds == ALONE else self.alone(cohort.mask)

    def to_tell(self, changed: int, moved: dict[int, int], every: bool) -> list[Cohort]:
        """The cohorts whose holders may have to be told something after a change on these devices,
        in the order in which they began. Another waiter may need their devices now: those become
        unsettled. Or the handoff for which they were told may cost less: those stay settled.
        moved: devices on which other waiters are first, by what those heed. every: with the FREE
        cohorts, whose holders only go where the site wants it."""
        news = self._all if every else self._with_news(moved)
        found = {n: cohort for n, cohort in news.items() if _may_hear(cohort, changed)}
        self._unsettled |= found
        for n, cohort in self._with_cost(changed).items():
            if cohort.calm or cohort.told:
                found[n] = cohort
        return _sorted(found)

    def _with_news(self, moved: dict[int, int]) -> dict[int, Cohort]:
        """The cohorts to tell. A SHARE cohort is never in the way of another SHARE cohort."""
        found = dict(self._unsettled)
        by_any = moved[SHARE] | moved[ALONE]
        if by_any:
            found |= self._alone.on(by_any)
        if moved[ALONE]:
            found |= self._locked.on(moved[ALONE])
        return found

    def _with_cost(self, changed: int) -> dict[int, Cohort]:
        """The cohorts that were told of a handoff whose cost may have changed."""
        found = self._costly.on(changed)
        for waiting in self._awaited.on(changed).values():
            found |= self._watchers[waiting.number]
        return found


def _may_hear(cohort: Cohort, changed: int) -> bool:
    """Something has changed for the cohort, and it has holders that are not revoked."""
    return (cohort.mask | cohort.watched) & changed != 0 and bool(cohort.calm or cohort.told)


def _sorted(cohorts: dict[int, Cohort]) -> list[Cohort]:
    """In the order in which they began to hold."""
    return sorted(cohorts.values(), key=_begun) if len(cohorts) > 1 else list(cohorts.values())


def _begun(cohort: Cohort) -> int:
    return cohort.begun
