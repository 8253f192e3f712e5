"""An index of who holds and who waits, by what they are compatible with.

A cohort is all tenants that have the same gang, lock and kind of memory and the same
answer of their policy whether they may run beside others. Whoever is in the way of one
of them is in the way of all. So questions are asked of cohorts, and what a question
costs depends on how many cohorts there are, not on how many tenants. Devices are bits
of a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from leased.core.deadlines import Deadlines
from leased.core.line import Line, Place
from leased.core.state import Device, Tenant

# What a cohort heeds. Two may run on one device at once if either is FREE or both SHARE.
FREE, SHARE, ALONE = range(3)

PRICED = 32  # waiters of a cohort that are asked whether a short lease is worth it for them


class Cohort:
    """waiting: those who could run, by their places. holding: those with a lease. Of these,
    `calm` have not been told that somebody waits for them, `told` have, the others are revoked.

    last_ends: of those told that fill no gap, when the last of them ends, below 0.
    most_cost: no handoff costs more for which one of them was told. waiter: the first for whom
    they were told. priced: what was found out about those who wait, see Turns; None: others
    wait now.
    """

    __slots__ = (
        "beside", "bits", "calm", "first", "gang", "heeds", "holding", "last_ends", "lock", "mask",
        "members", "most_cost", "number", "priced", "swaps", "told", "waiter", "waiting",
    )  # fmt: skip

    def __init__(self, number: int, key: tuple[tuple[str, ...], str, bool, bool], mask: int):
        self.number = number
        self.gang, self.lock, self.swaps, self.beside = key
        self.mask = mask
        self.bits = tuple(1 << n for n in range(mask.bit_length()) if mask >> n & 1)
        self.heeds = FREE
        self.members = 0
        self.waiting: Line[Place, Tenant] = Line()
        self.first: Tenant | None = None  # of those who wait
        self.priced: tuple[int, int] | None = None
        self.holding: dict[int, Tenant] = {}
        self.calm: dict[int, Tenant] = {}
        self.told: dict[int, Tenant] = {}
        self.last_ends: Deadlines[int] = Deadlines()
        self.most_cost = 0
        self.waiter: Tenant | None = None


class Cohorts:
    """All cohorts that have members. changed() when devices are used in another way."""

    def __init__(self, devices: Mapping[str, Device]):
        self.devices = devices
        self.bit = {uuid: 1 << n for n, uuid in enumerate(devices)}
        self._all = self.mask(devices)
        self.of: dict[int, Cohort] = {}  # by tenant
        self._known: dict[tuple[tuple[str, ...], str, bool, bool], Cohort] = {}
        self._holding: dict[int, Cohort] = {}
        self._line: Line[Place, Cohort] = Line()  # by the first who waits
        # Whether places on these devices are of several policies and cannot be compared.
        self.differ: Callable[[int], bool] = lambda _: False
        self._gangs: dict[int, int] = {}  # how many cohorts of several devices hold or wait
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
        cohort.members += 1
        self.of[tenant.id] = cohort

    def leave(self, tenant: Tenant) -> None:
        cohort = self.of.pop(tenant.id)
        cohort.members -= 1
        if not cohort.members:
            del self._known[cohort.gang, cohort.lock, cohort.swaps, cohort.beside]

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
            self._connect(cohort, 1)
        self._set_first(cohort)

    def leave_line(self, tenant: Tenant) -> None:
        cohort = self.of[tenant.id]
        assert tenant.place is not None
        cohort.waiting.remove(tenant.place, tenant)
        cohort.priced = None
        if cohort.first is tenant:
            self._line.remove(tenant.place, cohort)
            cohort.first = None
            self._set_first(cohort)
            if cohort.first is None:
                self._connect(cohort, -1)

    def _set_first(self, cohort: Cohort) -> None:
        first, before = cohort.waiting.first(), cohort.first
        if first is before:
            return
        if before is not None and before.place is not None:
            self._line.remove(before.place, cohort)
        cohort.first = first
        if first is not None and first.place is not None:
            self._line.add(first.place, cohort)

    def in_line(self, mask: int) -> list[Cohort]:
        """Those with somebody who waits for one of the devices, in the order of the first who
        waits. Where gangs connect devices of several policies, that is who came first."""
        line = [cohort for _, cohort in self._line.entries if cohort.mask & mask]
        if self.differ(mask):
            line.sort(key=lambda cohort: cohort.first.arrival if cohort.first else 0)
        return line

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
        elif (
            lock == "auto"
            and cohort.beside
            and all(self.devices[uuid].shared for uuid in cohort.gang)
        ):
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
