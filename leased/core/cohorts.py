"""An index of who holds and who waits, by what they are compatible with (see cohort.py).

Questions are asked of cohorts, so what a question costs does not depend on how many tenants
there are. Those that are asked after every event are answered from indexes by what cohorts heed,
by devices, and by places, so it hardly depends on how many cohorts there are either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.components import Components
from leased.core.ends import Ends
from leased.core.line import Line, Place
from leased.core.queued import Queued
from leased.core.state import Device, Tenant
from leased.core.taken import Taken

PRICED = 32  # waiters of a cohort that are asked whether a short lease is worth it for them


class Cohorts:
    """All cohorts that have members. changed() when devices are used in another way."""

    def __init__(self, devices: Mapping[str, Device]):
        self.devices = devices
        self.bit = {uuid: 1 << n for n, uuid in enumerate(devices)}
        self.of: dict[int, Cohort] = {}  # by tenant
        self._known: dict[tuple[tuple[str, ...], str, bool, bool], Cohort] = {}
        self._holding: dict[int, Cohort] = {}
        self._locked: dict[int, Cohort] = {}  # of them those that are not FREE
        self.held, self.alone = Taken(), Taken()  # by those, and by those that are ALONE
        self.overdue: dict[int, Tenant] = {}  # who should have released before now
        self._line: Line[Place, Cohort] = Line()  # by the first who waits
        self.queued = Queued(self.bit.values())  # the same by device
        self.ends = Ends(self.bit.values())
        # Those in the line, by what they heed and by one of their devices.
        self._waiting: dict[int, dict[int, dict[int, Cohort]]] = {FREE: {}, SHARE: {}, ALONE: {}}
        self._gangs = Components()  # of cohorts that hold or wait
        self._all_gangs = Components()
        self.gangs_changed = False  # other devices may be connected than when this was last False
        self._numbers = 0

    # -- members ------------------------------------------------------------------

    def join(self, tenant: Tenant, beside: bool) -> None:
        """The tenant belongs to the cohort that its gang, lock and memory say, until it leaves.
        beside: as its policy says."""
        key = tenant.gang, tenant.lock, tenant.swaps, beside
        cohort = self._known.get(key)
        if cohort is None:
            self._numbers += 1
            cohort = self._known[key] = Cohort(self._numbers, key, self.mask(tenant.gang))
            self._classify(cohort)
            self._all_gangs.add(cohort.links)
            self.gangs_changed |= cohort.links != ()
        cohort.members += 1
        self.of[tenant.id] = cohort

    def leave(self, tenant: Tenant) -> None:
        cohort = self.of.pop(tenant.id)
        cohort.members -= 1
        if not cohort.members:
            del self._known[cohort.gang, cohort.lock, cohort.swaps, cohort.beside]
            self._all_gangs.remove(cohort.links)
            self.gangs_changed |= cohort.links != ()

    def mask(self, gang: Iterable[str]) -> int:
        mask = 0
        for uuid in gang:
            mask |= self.bit[uuid]
        return mask

    # -- who waits ----------------------------------------------------------------

    def line_up(self, tenant: Tenant) -> None:
        """It waits from now on, at its place."""
        cohort = self.of[tenant.id]
        assert tenant.place is not None
        priced = cohort.waiting.entries[:PRICED]
        if len(priced) < PRICED or tenant.place < priced[-1][0]:
            cohort.priced = None
        cohort.waiting.add(tenant.place, tenant)
        if cohort.first is None:
            self._gangs.add(cohort.links)
            self._keep(cohort)
        self._set_first(cohort)

    def leave_line(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        assert tenant.place is not None
        cohort.waiting.remove(tenant.place, tenant)
        cohort.priced = None
        if cohort.first is tenant:
            self._out_of_line(tenant.place, cohort)
            cohort.first = None
            self._set_first(cohort)
            if cohort.first is None:
                self._gangs.remove(cohort.links)
                self._unkeep(cohort)

    def _set_first(self, cohort: Cohort) -> None:
        first, before = cohort.waiting.first(), cohort.first
        if first is before:
            return
        if before is not None and before.place is not None:
            self._out_of_line(before.place, cohort)
        cohort.first = first
        if first is not None and first.place is not None:
            cohort.place = first.place
            self._line.add(first.place, cohort)
            self.queued.add(first.place, cohort)

    def _out_of_line(self, place: Place, cohort: Cohort) -> None:
        self._line.remove(place, cohort)
        self.queued.remove(place, cohort)

    def _keep(self, cohort: Cohort) -> None:
        kept = self._waiting[cohort.heeds].setdefault(cohort.kept_at, {})
        kept[cohort.number] = cohort

    def _unkeep(self, cohort: Cohort) -> None:
        by_device = self._waiting[cohort.heeds]
        del by_device[cohort.kept_at][cohort.number]
        if not by_device[cohort.kept_at]:
            del by_device[cohort.kept_at]

    def in_line(self, mask: int) -> Iterator[Cohort]:
        """Those with somebody who waits for one of the devices, in the order of the first who
        waits."""
        return (cohort for _, cohort in self._line.entries if cohort.mask & mask)

    def next_at_once(self, mask: int) -> Cohort | None:
        """The first in the line for these devices, where it is not FREE and no holder is in its
        way; None: it is, or somebody is."""
        if self._waiting[FREE]:
            return None
        first = next(self.queued.leading(mask), None)
        if first is None:
            return None
        taken = self.held.mask if first.heeds == ALONE else self.alone.mask
        return None if first.mask & taken else first

    def able(self, mask: int) -> dict[int, Cohort]:
        """Those in the line for these devices whom no holder is in the way of, by number."""
        found: dict[int, Cohort] = {}
        for heeds, taken in ((FREE, 0), (SHARE, self.alone.mask), (ALONE, self.held.mask)):
            left = mask & ~taken
            for device, kept in self._waiting[heeds].items() if left else ():
                if device & left:
                    found |= {n: cohort for n, cohort in kept.items() if not cohort.mask & taken}
        return found

    # -- who holds ----------------------------------------------------------------

    def hold(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        if not cohort.holding:
            self._holding[cohort.number] = cohort
            self._lock(cohort)
            self._gangs.add(cohort.links)
        cohort.holding[tenant.id] = cohort.calm[tenant.id] = tenant
        cohort.settled = False

    def tell(self, tenant: Tenant, told: bool) -> None:
        """It knows, or not any more, that somebody waits."""
        cohort = self.of[tenant.id]
        cohort.calm.pop(tenant.id, None)
        cohort.told.pop(tenant.id, None)
        (cohort.told if told else cohort.calm)[tenant.id] = tenant
        cohort.settled = False

    def revoke(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        cohort.calm.pop(tenant.id, None)
        cohort.told.pop(tenant.id, None)
        self.ends.put(tenant.id, cohort, None)

    def end(self, tenant: Tenant) -> None:
        self.revoke(tenant)
        cohort = self.of[tenant.id]
        self.overdue.pop(tenant.id, None)
        del cohort.holding[tenant.id]
        if not cohort.holding:
            del self._holding[cohort.number]
            if self._locked.pop(cohort.number, None):
                self.held.remove(cohort.bits)
                if cohort.heeds == ALONE:
                    self.alone.remove(cohort.bits)
            self._gangs.remove(cohort.links)

    def _lock(self, cohort: Cohort) -> None:
        """It has holders now, or heeds something else."""
        if cohort.heeds != FREE:
            self._locked[cohort.number] = cohort
            self.held.add(cohort.bits)
        if cohort.heeds == ALONE:
            self.alone.add(cohort.bits)

    def overran(self, tenant: Tenant) -> None:
        """It holds, and should have released."""
        self.overdue[tenant.id] = tenant

    def holders(self, mask: int) -> list[Cohort]:
        """Those with somebody who holds one of the devices."""
        return [cohort for cohort in self._holding.values() if cohort.mask & mask]

    def locked(self, mask: int) -> list[Cohort]:
        """Of these, those that are not FREE."""
        return [cohort for cohort in self._locked.values() if cohort.mask & mask]

    def to_tell(self, changed: int, every: bool) -> list[Cohort]:
        """Holders for whom somebody else may wait now than before, as something has changed on
        these devices. every: those that are FREE too, who only go where the site wants it. Where
        nobody else leads the lines it is no news, unless it may cost less."""
        moved, self.queued.moved = self.queued.moved, 0
        if not changed:
            return []
        return [
            cohort
            for cohort in (self._holding if every else self._locked).values()
            if (cohort.mask | cohort.watched) & changed
            and (cohort.calm or cohort.told)
            and (every or cohort.mask & moved or cohort.most_cost or not cohort.settled)
        ]

    def against(self, cohort: Cohort) -> list[Cohort]:
        """Those with holders that must release before one of the cohort can have its gang."""
        if cohort.heeds == FREE:
            return []
        other = SHARE if cohort.heeds == ALONE else ALONE
        return [c for c in self._locked.values() if c.mask & cohort.mask and c.heeds >= other]

    # -- what they heed -----------------------------------------------------------

    def changed(self) -> None:
        """Devices are locked, shared or tried in another way than before."""
        for cohort in self._known.values():
            before = cohort.heeds
            self._classify(cohort)
            if cohort.heeds != before and cohort.first is not None:
                after, cohort.heeds = cohort.heeds, before
                self._unkeep(cohort)
                self.queued.remove(cohort.place, cohort)
                cohort.heeds = after
                self._keep(cohort)
                self.queued.add(cohort.place, cohort)
        self.ends.sort_again()
        self._locked, self.held, self.alone = {}, Taken(), Taken()
        for cohort in self._holding.values():
            self._lock(cohort)

    def lock_of(self, cohort: Cohort) -> str:
        """The lock mode that counts: the site's for one of its devices, else its own."""
        lock = cohort.lock
        for uuid in cohort.gang:
            forced = self.devices[uuid].lock
            if forced is not None:
                lock = forced
                break
        return "auto" if cohort.swaps and lock == "off" else lock

    def _classify(self, cohort: Cohort) -> None:
        lock = self.lock_of(cohort)
        if lock == "off":
            cohort.heeds = FREE
        elif (
            lock == "auto"
            and cohort.beside
            and all(self.devices[uuid].shared for uuid in cohort.gang)
        ):
            cohort.heeds = SHARE
        else:
            cohort.heeds = ALONE

    def reached(self, mask: int) -> int:
        """These devices and all that gangs which wait or hold connect with them."""
        return self._gangs.reached(mask)

    def connected(self, mask: int) -> int:
        """These devices and all that gangs of any tenants connect with them."""
        return self._all_gangs.reached(mask)
