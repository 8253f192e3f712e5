"""An index of the line by device: which waiters come before which, found without a scan.

An ALONE waiter stands behind every waiter before it on one of its devices, a SHARE waiter behind
the ALONE ones, and a FREE waiter behind nobody. So only the heads of the devices' lines matter.
Devices are bits of a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.heads import Heads
from leased.core.line import FIRST, Line, Place

FEW = 8  # devices, and those that wait for one, of which the order is not worth keeping


class Queued:
    """Cohorts in the line, by the first of theirs who waits. moved: devices on which
    others are first than when that was last taken, by what they heed: those that are SHARE count
    only where none that is ALONE comes before them."""

    def __init__(self, bits: Iterable[int]):
        self.moved = {SHARE: 0, ALONE: 0}
        bits = list(bits)
        self._at: dict[Place, Cohort] = {}
        self._heads = {SHARE: Heads(bits), ALONE: Heads(bits)}
        self._sharing: Line[Cohort] = Line()
        self._everywhere = sum(bits)
        # Those behind nobody: that are ALONE, and that are SHARE. Of the latter, those at places
        # beyond `stale` are to be found again.
        self._leading: dict[int, Cohort] = {}
        self._leading_sharing: Line[Cohort] = Line()
        self._stale: Place | None = None

    def add(self, place: Place, cohort: Cohort) -> None:
        if cohort.heeds == FREE:
            return
        moved, heads = self._concerned(place, cohort)
        self._at[place] = cohort
        self._heads[cohort.heeds].add(place, cohort)
        self._changed(place, cohort, moved, heads)
        if cohort.heeds == SHARE:
            self._sharing.add(place, cohort)
            if self._is_known(place) and not self.is_behind(place, cohort):
                self._leading_sharing.add(place, cohort)
        elif not self.is_behind(place, cohort):
            self._leading[cohort.number] = cohort

    def remove(self, place: Place, cohort: Cohort) -> None:
        """Remove a cohort that was added with this place, and heeds the same mode as then."""
        if cohort.heeds == FREE:
            return
        del self._at[place]
        if cohort.heeds == SHARE:
            self._sharing.remove(place, cohort)
            self._leading_sharing.remove(place, cohort)
        self._leading.pop(cohort.number, None)
        self._heads[cohort.heeds].remove(place, cohort)
        self._changed(place, cohort, *self._concerned(place, cohort))

    def take_moved(self) -> dict[int, int]:
        """Devices whose heads have changed since this was last asked, by what those heed."""
        moved, self.moved = self.moved, {SHARE: 0, ALONE: 0}
        return moved

    def _concerned(self, place: Place, cohort: Cohort) -> tuple[int, list[Place]]:
        """While the cohort is not there: on which devices it would be the first at this place, and
        the heads of those."""
        alone = self._heads[ALONE]
        moved = cohort.mask & ~alone.before(place, cohort.mask)
        return moved, [head for head, _ in alone.all(moved)] if moved else []

    def _changed(self, place: Place, cohort: Cohort, moved: int, heads: list[Place]) -> None:
        """A cohort has come to this place or gone from it. moved, heads: see _concerned."""
        self.moved[cohort.heeds] |= moved
        if moved and cohort.heeds == ALONE and self._is_known(place):
            self._stale = place - 1
        for at in heads:
            other = self._at[at]
            if self.is_behind(at, other):
                self._leading.pop(other.number, None)
            else:
                self._leading[other.number] = other

    def is_behind(self, place: Place, cohort: Cohort) -> bool:
        """A waiter before this place competes with the cohort."""
        if cohort.heeds == FREE:
            return False
        if self._heads[ALONE].is_any_before(place, cohort.mask):
            return True
        if cohort.heeds == SHARE:
            return False
        return self._heads[SHARE].is_any_before(place, cohort.mask)

    def first(self, mask: int) -> Cohort | None:
        """The first in the line for these devices, but for those that are FREE."""
        if mask.bit_count() > len(self._at):
            return min((c for c in self._at.values() if c.mask & mask), key=_place, default=None)
        return self._first_of(self._heads.values(), mask)

    def _first_of(self, of: Iterable[Heads], mask: int) -> Cohort | None:
        places = [place for heads in of if (place := heads.first(mask)) is not None]
        return self._at[min(places)] if places else None

    def leading(self, mask: int, after: Place = FIRST) -> Iterator[Cohort]:
        """Those in the line for these devices that stand behind nobody, in their order, but for
        those that are FREE. Only those at places beyond `after`."""
        few = self._few_sharing(mask)
        if few is not None:
            places = {place for place, _ in self._heads[ALONE].all(mask)} | few
            found = [(place, self._at[place]) for place in places if place > after]
            found = [(place, c) for place, c in found if not self.is_behind(place, c)]
            return iter([cohort for _, cohort in sorted(found)])
        alone = [c for c in self._leading.values() if c.mask & mask and c.place > after]
        alone.sort(key=_place)
        self._find_leading()
        sharing = self._leading_sharing.from_place(after)
        return _merged(alone, sharing, mask) if sharing else iter(alone)

    def _few_sharing(self, mask: int) -> set[Place] | None:
        """The places of those in the line for these devices that are SHARE; None: these are many,
        or the devices are."""
        if mask.bit_count() > max(FEW, len(self._leading) // 4):
            return None
        return self._heads[SHARE].few(mask, FEW)

    # -- those that are SHARE and stand behind nobody ------------------------------------

    def _is_known(self, place: Place) -> bool:
        """Whether those at this place stand behind nobody need not be found again."""
        return self._stale is None or place <= self._stale

    def _find_leading(self) -> None:
        """Find the SHARE cohorts that stand behind no ALONE cohort on any of their devices."""
        after, self._stale = self._stale, None
        if after is None:
            return
        self._leading_sharing.cut(after)
        sharing = self._sharing.from_place(after)
        alone = self._heads[ALONE].all(self._everywhere) if sharing else []
        heads, wanted, at = sorted(alone), 0, 0
        for place, cohort in sharing:
            while at < len(heads) and heads[at][0] < place:
                wanted |= heads[at][1]
                at += 1
            if wanted == self._everywhere:
                break
            if not cohort.mask & wanted:
                self._leading_sharing.add(place, cohort)

    def first_against(self, cohort: Cohort) -> Cohort | None:
        """The first in the line that holders of this cohort are in the way of."""
        if cohort.heeds == FREE:
            return None
        heads = self._heads
        against = (heads[ALONE], heads[SHARE]) if cohort.heeds == ALONE else (heads[ALONE],)
        return self._first_of(against, cohort.mask)


def _merged(
    alone: list[Cohort], sharing: Iterable[tuple[Place, Cohort]], mask: int
) -> Iterator[Cohort]:
    """All of `alone`, and those of `sharing` that are for these devices, by their places."""
    at = 0
    for place, cohort in sharing:
        if cohort.mask & mask:
            while at < len(alone) and alone[at].place < place:
                yield alone[at]
                at += 1
            yield cohort
    yield from alone[at:]


def _place(cohort: Cohort) -> Place:
    return cohort.place
