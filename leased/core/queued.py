"""An index of the queue by device: who stands before whom there, found without a scan.

Who is ALONE stands behind everybody before it on one of its devices, and who is SHARE behind
those that are ALONE; who is FREE behind nobody. So it is the heads of the devices' lines that
count. Devices are bits of a number.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator

from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.line import Line, Place

FAR: Place = (1 << 100, 0)


class Queued:
    """Cohorts in the line, by the first of theirs who waits. moved: devices whose heads have
    changed since that was last cleared."""

    def __init__(self, bits: Iterable[int]):
        self.moved = 0
        bits = list(bits)
        self._lines: dict[int, dict[int, Line[Place, Cohort]]] = {
            heeds: {bit: Line() for bit in bits} for heeds in (SHARE, ALONE)
        }
        self._sharing: Line[Place, Cohort] = Line()
        self._leading: dict[int, Cohort] = {}  # those that are ALONE and behind nobody

    def add(self, place: Place, cohort: Cohort) -> None:
        if cohort.heeds == FREE:
            return
        lines = self._lines[cohort.heeds]
        for bit in cohort.bits:
            lines[bit].add(place, cohort)
        self._changed(place, cohort)
        if cohort.heeds == SHARE:
            self._sharing.add(place, cohort)
        elif not self.is_behind(place, cohort):
            self._leading[cohort.number] = cohort

    def remove(self, place: Place, cohort: Cohort) -> None:
        """It has been added with this place and heeds the same."""
        if cohort.heeds == FREE:
            return
        lines = self._lines[cohort.heeds]
        if cohort.heeds == SHARE:
            self._sharing.remove(place, cohort)
        self._leading.pop(cohort.number, None)
        for bit in cohort.bits:
            lines[bit].remove(place, cohort)
        self._changed(place, cohort)

    def _changed(self, place: Place, cohort: Cohort) -> None:
        """At this place it has come, or gone: where it is a head others lead or do not now."""
        for bit in cohort.bits:
            alone = self._lines[ALONE][bit].entries
            if alone and alone[0][0] < place:
                continue
            self.moved |= bit
            for at, other in alone[:2]:
                if other is not cohort and self.is_behind(at, other):
                    self._leading.pop(other.number, None)
                elif other is not cohort:
                    self._leading[other.number] = other

    def is_behind(self, place: Place, cohort: Cohort) -> bool:
        """Somebody before this place competes with it."""
        if cohort.heeds == FREE:
            return False
        alone, sharing = self._lines[ALONE], self._lines[SHARE]
        for bit in cohort.bits:
            before = alone[bit].entries
            if before and before[0][0] < place:
                return True
            if cohort.heeds == ALONE:
                before = sharing[bit].entries
                if before and before[0][0] < place:
                    return True
        return False

    def leading(self, mask: int) -> Iterator[Cohort]:
        """Those in the line for these devices that stand behind nobody, in their order, but for
        those that are FREE."""
        alone = [cohort for cohort in self._leading.values() if cohort.mask & mask]
        alone.sort(key=_place)
        if not self._sharing:
            return iter(alone)
        return heapq.merge(alone, self._leading_sharers(mask), key=_place)

    def _leading_sharers(self, mask: int) -> Iterator[Cohort]:
        """Those of them that are SHARE."""
        last = self._all_wanted_alone(mask)
        for place, cohort in self._sharing.entries:
            if place > last:
                break
            if cohort.mask & mask and not self.is_behind(place, cohort):
                yield cohort

    def _all_wanted_alone(self, mask: int) -> Place:
        """From this place on somebody who is ALONE comes before on each of these devices."""
        heads = []
        for bit, line in self._lines[ALONE].items():
            if bit & mask:
                if not line.entries:
                    return FAR
                heads.append(line.entries[0][0])
        return max(heads, default=FAR)

    def first_against(self, cohort: Cohort) -> Cohort | None:
        """The first in the line that holders of this cohort are in the way of."""
        if cohort.heeds == FREE:
            return None
        found: tuple[Place, Cohort] | None = None
        for heeds in (ALONE, SHARE) if cohort.heeds == ALONE else (ALONE,):
            lines = self._lines[heeds]
            for bit in cohort.bits:
                entries = lines[bit].entries
                if entries and (found is None or entries[0][0] < found[0]):
                    found = entries[0]
        return found[1] if found else None


def _place(cohort: Cohort) -> Place:
    return cohort.place
