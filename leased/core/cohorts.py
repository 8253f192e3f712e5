"""An index of holders and waiters by cohort (see cohort.py).

Since questions are asked of cohorts, their cost does not depend on the number of tenants. Questions
that are asked after every event are answered from indexes by what cohorts heed, by devices and by
places, so their cost hardly depends on the number of cohorts either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.components import Components
from leased.core.holders import Holders
from leased.core.line import Line, Place
from leased.core.openings import Openings
from leased.core.queued import Queued
from leased.core.seats import Seats
from leased.core.state import Device, Tenant

SHORT = 8  # devices, and cohorts at the beginning of the line, that are looked at one by one
PRICED = 32  # waiters of a cohort that are asked whether a short lease is worth it for them


class Cohorts:
    """All cohorts that have members. Call changed() when devices are used in another way."""

    def __init__(self, devices: Mapping[str, Device]):
        self.devices = devices
        self.bit = {uuid: 1 << n for n, uuid in enumerate(devices)}
        self.uuids = {bit: uuid for uuid, bit in self.bit.items()}
        self.of: dict[int, Cohort] = {}  # by tenant
        self._known: dict[tuple[tuple[str, ...], str, bool, bool], Cohort] = {}
        self.openings = Openings()
        self.holders = Holders(self.bit.values(), self.openings)
        self._line: Line[Cohort] = Line()  # by the first who waits
        self.queued = Queued(self.bit.values())  # the same by device
        # Those in the line, by what they heed.
        self._waiting = {FREE: Seats(), SHARE: Seats(), ALONE: Seats()}
        self._gangs = Components()  # of cohorts that hold or wait, and of these, which do not now:
        self._parted: dict[int, Cohort] = {}
        self._all_gangs = Components()
        self.gangs_changed = False  # other devices may be connected than when this was last False
        self._numbers = 0
        # Devices that the site has given a lock, and those that nobody with lock auto shares.
        self._forced = self._unshared = 0

    # -- members ------------------------------------------------------------------

    def join(self, tenant: Tenant, beside: bool) -> None:
        """The tenant belongs to the cohort that its gang, lock and memory say, until it leaves.
        beside: its policy lets it run beside others."""
        key = tenant.gang, tenant.lock, tenant.swaps, beside
        cohort = self._known.get(key)
        if cohort is None:
            self._numbers += 1
            cohort = self._known[key] = Cohort(self._numbers, key, self.mask(tenant.gang))
            cohort.devices = tuple([self.devices[uuid] for uuid in tenant.gang])
            for device in cohort.devices:
                device.waiters[cohort.number] = cohort.waiters
            self._classify(cohort)
            self._all_gangs.add(cohort.links)
            self.gangs_changed |= cohort.links != ()
        cohort.members += 1
        self.of[tenant.id] = cohort
        if tenant.waiting:
            cohort.waiters[tenant.id] = tenant

    def leave(self, tenant: Tenant) -> None:
        cohort = self.of.pop(tenant.id)
        cohort.waiters.pop(tenant.id, None)
        cohort.members -= 1
        if not cohort.members:
            for device in cohort.devices:
                del device.waiters[cohort.number]
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
        """The tenant waits in the line from now on, at its place."""
        cohort = self.of[tenant.id]
        assert tenant.place is not None
        priced = cohort.waiting.entries[:PRICED]
        if len(priced) < PRICED or tenant.place < priced[-1][0]:
            cohort.priced = None
        cohort.waiting.add(tenant.place, tenant)
        if cohort.first is None:
            if not cohort.holding:
                self._connect(cohort)
            self._waiting[cohort.heeds].add(cohort)
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
                if not cohort.holding:
                    self._parted[cohort.number] = cohort
                self._waiting[cohort.heeds].remove(cohort)

    def move(self, tenant: Tenant, place: Place) -> None:
        """The tenant waits at this place from now on, and not at its own any more."""
        cohort, before = self.of[tenant.id], tenant.place
        assert before is not None
        cohort.waiting.remove(before, tenant)
        cohort.waiting.add(place, tenant)
        cohort.priced = None
        if cohort.first is tenant:
            self._out_of_line(before, cohort)
            cohort.first = None
        tenant.place = place
        self._set_first(cohort)

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
            self.openings.come(cohort)

    def _out_of_line(self, place: Place, cohort: Cohort) -> None:
        self._line.remove(place, cohort)
        self.queued.remove(place, cohort)
        self.openings.leave(place, cohort)

    def anybody_waits(self) -> bool:
        """Whether any tenant waits."""
        return any(self._waiting.values())

    def in_line(self, mask: int) -> Iterator[Cohort]:
        """Cohorts with waiters for one of the devices, in the order of their first waiters."""
        return (cohort for _, cohort in self._line.entries if cohort.mask & mask)

    def first_on(self, bit: int) -> Tenant | None:
        """The first who waits for this device."""
        if self._waiting[FREE]:
            return next((cohort.first for cohort in self.in_line(bit)), None)
        first = self.queued.first(bit)
        return first.first if first else None

    def first_locked(self, mask: int) -> Cohort | None:
        """The first cohort in the line for these devices that is not FREE. Where the devices are
        many, it mostly stands at the beginning of the line."""
        if mask.bit_count() > SHORT:
            for _, cohort in self._line.entries[:SHORT]:
                if cohort.heeds != FREE and cohort.mask & mask:
                    return cohort
        return self.queued.first(mask)

    def next_at_once(self, mask: int) -> Cohort | None:
        """The first cohort in the line for these devices, if it is not FREE and no holder is in
        its way; otherwise None."""
        if self._waiting[FREE]:
            return None
        first = self.first_locked(mask)
        if first is None:
            return None
        return None if first.mask & self.holders.taken(first.heeds) else first

    def able(self, mask: int) -> list[Cohort]:
        """Cohorts in the line for these devices that no holder is in the way of, in no order."""
        found: list[Cohort] = []
        for heeds, waiting in self._waiting.items():
            taken = self.holders.taken(heeds)
            if waiting and mask & ~taken:
                found += waiting.free(mask & ~taken, taken)
        return found

    # -- who holds ----------------------------------------------------------------

    def hold(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        if self.holders.add(tenant, cohort) and cohort.first is None:
            self._connect(cohort)

    def end(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        if self.holders.remove(tenant, cohort) and cohort.first is None:
            self._parted[cohort.number] = cohort

    def to_tell(self, changed: int, every: bool) -> list[Cohort]:
        """See Holders.to_tell."""
        moved = self.queued.take_moved()
        return self.holders.to_tell(changed, moved, every) if changed else []

    # -- what they heed -----------------------------------------------------------

    def changed(self) -> list[Cohort]:
        """Devices are locked or shared in another way than before. Returns the cohorts that
        have begun or ceased to be FREE."""
        turned: list[Cohort] = []
        self._note_devices()
        for cohort in self._known.values():
            before = cohort.heeds
            self._classify(cohort)
            if FREE in (before, cohort.heeds) and cohort.heeds != before:
                turned.append(cohort)
            if cohort.heeds != before and cohort.first is not None:
                after, cohort.heeds = cohort.heeds, before
                self._waiting[before].remove(cohort)
                self.queued.remove(cohort.place, cohort)
                cohort.heeds = after
                self._waiting[after].add(cohort)
                self.queued.add(cohort.place, cohort)
        self.holders.sort_again(self.mask(self.devices))
        return turned

    def lock_of(self, cohort: Cohort) -> str:
        """The lock mode that counts: the site's for one of its devices, else its own."""
        lock = cohort.lock
        for uuid in cohort.gang if cohort.mask & self._forced else ():
            forced = self.devices[uuid].lock
            if forced is not None:
                lock = forced
                break
        return "auto" if cohort.swaps and lock == "off" else lock

    def _note_devices(self) -> None:
        self._forced = self.mask(u for u, device in self.devices.items() if device.lock is not None)
        self._unshared = self.mask(u for u, device in self.devices.items() if not device.fits)

    def _classify(self, cohort: Cohort) -> None:
        lock = self.lock_of(cohort)
        if lock == "off":
            cohort.heeds = FREE
        elif lock == "auto" and cohort.beside and not cohort.mask & self._unshared:
            cohort.heeds = SHARE
        else:
            cohort.heeds = ALONE

    def reached(self, mask: int) -> int:
        """These devices and all that gangs which wait or hold connect with them."""
        if self._parted:
            for cohort in self._parted.values():
                self._gangs.remove(cohort.links)
            self._parted.clear()
        return self._gangs.reached(mask)

    def _connect(self, cohort: Cohort) -> None:
        """The cohort waits or holds from now on. Most that cease to wait begin to hold at once, so
        that their links stay."""
        if self._parted.pop(cohort.number, None) is None:
            self._gangs.add(cohort.links)

    def connected(self, mask: int) -> int:
        """These devices and all that gangs of any tenants connect with them."""
        return self._all_gangs.reached(mask)
