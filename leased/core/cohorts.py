"""Tenants that are alike are in each other's way alike: an index of who holds and who waits.

A cohort is all tenants of one gang, lock and kind of memory. Whoever is in the way
of one of them is in the way of all, so questions are asked of cohorts, and devices
are bits of a number. However many tenants there are, a question costs what there
are of cohorts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from leased.core.deadlines import Deadlines
from leased.core.line import Line
from leased.core.state import Device, Tenant

# What a cohort heeds. Two may run on one device at once if either is FREE or both SHARE.
FREE, SHARE, ALONE = range(3)

PRICED = 32  # waiters of a cohort that are asked whether a short lease is worth it for them


class Cohort:
    """waiting: those who could run, first come first. holding: those with a lease, of whom
    `calm` think that nobody waits for them, `told` know better, and the others are revoked.

    last_ends: of those told that fill no gap, when the last of them ends, below 0.
    most_cost: no handoff costs more for which one of them was told. priced: what was found out
    about those who wait, see Turns; None: others wait now.
    """

    __slots__ = (
        "bits", "calm", "first", "gang", "heeds", "holding", "last_ends", "lock", "mask",
        "members", "most_cost", "number", "priced", "swaps", "told", "waiting",
    )  # fmt: skip

    def __init__(self, number: int, gang: tuple[str, ...], lock: str, swaps: bool, mask: int):
        self.number = number
        self.gang = gang
        self.lock = lock
        self.swaps = swaps
        self.mask = mask
        self.bits = tuple(1 << n for n in range(mask.bit_length()) if mask >> n & 1)
        self.heeds = FREE
        self.members = 0
        self.waiting: OrderedDict[int, Tenant] = OrderedDict()
        self.first: Tenant | None = None  # of those who wait
        self.priced: tuple[int, int] | None = None
        self.holding: dict[int, Tenant] = {}
        self.calm: dict[int, Tenant] = {}
        self.told: dict[int, Tenant] = {}
        self.last_ends: Deadlines[int] = Deadlines()
        self.most_cost = 0


class Cohorts:
    """All cohorts that have members. changed() when devices are used in another way."""

    def __init__(self, devices: Mapping[str, Device]):
        self.devices = devices
        self.bit = {uuid: 1 << n for n, uuid in enumerate(devices)}
        self._all = self.mask(devices)
        self.of: dict[int, Cohort] = {}  # by tenant
        self._known: dict[tuple[tuple[str, ...], str, bool], Cohort] = {}
        self._holding: dict[int, Cohort] = {}
        self._line: Line[Cohort] = Line()  # by the first who waits
        self._gangs: dict[int, int] = {}  # how many cohorts of several devices hold or wait
        self._numbers = 0

    # -- members ------------------------------------------------------------------

    def join(self, tenant: Tenant) -> None:
        """The tenant is, until it leaves, of the cohort that its gang, lock and memory say."""
        key = tenant.gang, tenant.lock, tenant.swaps
        cohort = self._known.get(key)
        if cohort is None:
            self._numbers += 1
            cohort = self._known[key] = Cohort(self._numbers, *key, self.mask(tenant.gang))
            self._classify(cohort)
        cohort.members += 1
        self.of[tenant.id] = cohort

    def leave(self, tenant: Tenant) -> None:
        cohort = self.of.pop(tenant.id)
        cohort.members -= 1
        if not cohort.members:
            del self._known[cohort.gang, cohort.lock, cohort.swaps]

    def mask(self, gang: Iterable[str]) -> int:
        mask = 0
        for uuid in gang:
            mask |= self.bit[uuid]
        return mask

    # -- who waits ----------------------------------------------------------------

    def line_up(self, tenant: Tenant) -> None:
        """Behind all who wait."""
        cohort = self.of[tenant.id]
        cohort.waiting[tenant.id] = tenant
        if len(cohort.waiting) <= PRICED:
            cohort.priced = None
        if cohort.first is None:
            cohort.first = tenant
            self._line.add(tenant.arrival, cohort)
            self._connect(cohort, 1)

    def leave_line(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        del cohort.waiting[tenant.id]
        cohort.priced = None
        if cohort.first is tenant:
            self._line.remove(tenant.arrival, cohort)
            cohort.first = next(iter(cohort.waiting.values()), None)
            if cohort.first is not None:
                self._line.add(cohort.first.arrival, cohort)
            else:
                self._connect(cohort, -1)

    def in_line(self, mask: int) -> list[Cohort]:
        """Those with somebody who waits for one of the devices, the earliest waiter first."""
        return [cohort for _, cohort in self._line.entries if cohort.mask & mask]

    # -- who holds ----------------------------------------------------------------

    def hold(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        if not cohort.holding:
            self._holding[cohort.number] = cohort
            self._connect(cohort, 1)
        cohort.holding[tenant.id] = cohort.calm[tenant.id] = tenant

    def tell(self, tenant: Tenant, told: bool) -> None:
        """It knows, or not any more, that somebody waits."""
        cohort = self.of[tenant.id]
        cohort.calm.pop(tenant.id, None)
        cohort.told.pop(tenant.id, None)
        (cohort.told if told else cohort.calm)[tenant.id] = tenant

    def revoke(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        cohort.calm.pop(tenant.id, None)
        cohort.told.pop(tenant.id, None)
        cohort.last_ends.put(tenant.id, None)

    def end(self, tenant: Tenant) -> None:
        self.revoke(tenant)
        cohort = self.of[tenant.id]
        del cohort.holding[tenant.id]
        if not cohort.holding:
            del self._holding[cohort.number]
            self._connect(cohort, -1)

    def holders(self, mask: int) -> list[Cohort]:
        """Those with somebody who holds one of the devices."""
        return [cohort for cohort in self._holding.values() if cohort.mask & mask]

    def against(self, cohort: Cohort) -> list[Cohort]:
        """Those with holders that must release before one of the cohort can have its gang."""
        if cohort.heeds == FREE:
            return []
        other = SHARE if cohort.heeds == ALONE else ALONE
        return [c for c in self._holding.values() if c.mask & cohort.mask and c.heeds >= other]

    # -- what they heed -----------------------------------------------------------

    def changed(self) -> None:
        """Devices are locked, shared or tried in another way than before."""
        for cohort in self._known.values():
            self._classify(cohort)

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
        elif lock == "auto" and all(self.devices[uuid].shared for uuid in cohort.gang):
            cohort.heeds = SHARE
        else:
            cohort.heeds = ALONE

    # -- which devices belong together --------------------------------------------------

    def _connect(self, cohort: Cohort, more: int) -> None:
        if len(cohort.gang) > 1:
            count = self._gangs.get(cohort.mask, 0) + more
            self._gangs[cohort.mask] = count
            if not count:
                del self._gangs[cohort.mask]

    def reached(self, mask: int) -> int:
        """These devices and all that gangs which wait or hold connect with them."""
        before = 0
        while self._gangs and mask != before:
            before = mask
            for gang in self._gangs:
                if gang & mask:
                    mask |= gang
            if mask == self._all:
                break
        return mask


def compatible(one: Cohort, other: Cohort) -> bool:
    """May tenants of both hold a lease on the same device at once?"""
    return FREE in (one.heeds, other.heeds) or one.heeds == other.heeds == SHARE
