"""One look along the line: which waiters could be let in, and which are at the front."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable
from dataclasses import dataclass, field

from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.line import FIRST, Place
from leased.core.rules import BACKFILL_NS
from leased.core.state import FOREVER, Tenant


@dataclass
class Front:
    """A waiter at the front. The gap before its turn ends at `until`."""

    tenant: Tenant
    until: int


def _by_heeds() -> list[int]:
    return [0, 0, 0]


@dataclass
class Look:
    """Devices are bits of a number; lists of three have one entry for each way to heed a lock.

    able: cohorts whose devices are free, with their places, in order; those before `at` are
    judged. last: the place of the last of them. place: as far as the look has come. fronts:
    waiters at the front that it has passed. first, last_front: the places of the first and the
    last of these. waited_for: their devices, by what they heed. shut: devices whose gap is too
    short, by what those heed for whom it is; shut_first: by the first front alone. ends: when the
    gap before the fronts ends on a device, by what those heed for whom it does. refused: somebody
    was, for what its handoff costs. near: the devices whose fronts are looked at; where these are
    not all of `mask` the look is not continued, since fronts that it has not seen may matter then.
    """

    mask: int
    near: int
    able: list[tuple[Place, Cohort]] = field(default_factory=list)
    at: int = 0
    last: Place = FIRST
    place: Place = FIRST
    fronts: list[Front] = field(default_factory=list)
    first: Place | None = None
    last_front: Place = FIRST
    waited_for: list[int] = field(default_factory=_by_heeds)
    shut: list[int] = field(default_factory=_by_heeds)
    shut_first: list[int] = field(default_factory=_by_heeds)
    ends: list[dict[int, int]] = field(default_factory=lambda: [{}, {}, {}])
    refused: bool = False

    @property
    def is_whole(self) -> bool:
        """It looks at all fronts."""
        return self.near == self.mask

    def add_able(self, cohorts: Iterable[Cohort]) -> None:
        """These cohorts' devices are free. Those for which the gap is too short are left out."""
        shut = self.shut
        self.able = [(c.place, c) for c in cohorts if not c.mask & shut[c.heeds]]
        self.able.sort()

    def insert(self, cohort: Cohort) -> None:
        """Put a cohort into the part of the line that is still to be looked at."""
        self.last = max(self.last, cohort.place)
        insort(self.able, (cohort.place, cohort), self.at)

    def pass_front(self, front: Front, cohort: Cohort, now: int) -> None:
        """Pass a front: whoever is let in behind it must have released when its turn begins."""
        self.fronts.append(front)
        self.waited_for[cohort.heeds] |= cohort.mask
        self.last_front = max(self.last_front, cohort.place)
        until = front.until
        short = until - now < BACKFILL_NS
        for heeds in (SHARE, ALONE) if cohort.heeds == ALONE else (ALONE,):
            if short:  # nobody asks when the gap ends where it is too short for all
                self.shut[heeds] |= cohort.mask
                continue
            ends = self.ends[heeds]
            for bit in cohort.bits:
                if ends.get(bit, FOREVER) >= until:
                    ends[bit] = until
        if self.first is None:
            self.first, self.shut_first = cohort.place, list(self.shut)

    def gap(self, cohort: Cohort) -> int:
        """When the turn begins of the first front that needs a device of the cohort."""
        ends = self.ends[cohort.heeds]
        if not ends or cohort.heeds == FREE:
            return FOREVER
        return min(ends.get(bit, FOREVER) for bit in cohort.bits)

    def finish(self) -> None:
        """End the look at the last cohort whose devices are free."""
        self.able, self.at, self.place = [], 0, max(self.place, self.last)

    def is_no_news(self, cohort: Cohort, blocked: bool, behind: bool) -> bool:
        """A cohort has lined up where the look has passed already, and no tenant can be let in for
        that. This is so if it competes with no front behind it (which would cease to be one), and
        either its devices are not free and it is not a front, or the gap is too short for it."""
        if cohort.place < self.last_front and self._competes_with_fronts(cohort):
            return False
        if blocked:
            return behind
        behind_first = self.first is not None and cohort.place > self.first
        return behind_first and cohort.mask & self.shut_first[cohort.heeds] != 0

    def _competes_with_fronts(self, cohort: Cohort) -> bool:
        """The cohort and a front compete for a device, wherever they stand."""
        sharing, alone = self.waited_for[SHARE], self.waited_for[ALONE]
        if cohort.heeds == FREE:
            return False
        return cohort.mask & (sharing | alone if cohort.heeds == ALONE else alone) != 0
