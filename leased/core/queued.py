"""An index of the queue by device: who stands before whom there, found without a scan.

Who is ALONE stands behind everybody before it on one of its devices, and who is SHARE behind
those that are ALONE; who is FREE behind nobody. So it is the heads of the devices' lines that
count. Devices are bits of a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.line import Line, Place

NEAR: Place = (-1 << 100, 0)  # before all others


class Queued:
    """Cohorts in the line, by the first of theirs who waits. moved: devices on which
    others are first than when that was last taken, by what they heed: those that are SHARE count
    only where none that is ALONE comes before them."""

    def __init__(self, bits: Iterable[int]):
        self.moved = {SHARE: 0, ALONE: 0}
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

    def take_moved(self) -> dict[int, int]:
        """Devices whose heads have changed since this was last asked, by what those heed."""
        moved, self.moved = self.moved, {SHARE: 0, ALONE: 0}
        return moved

    def _changed(self, place: Place, cohort: Cohort) -> None:
        """At this place it has come, or gone: where it is a head others lead or do not now."""
        for bit in cohort.bits:
            alone = self._lines[ALONE][bit].entries
            if alone and alone[0][0] < place:
                continue
            self.moved[cohort.heeds] |= bit
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

    def leading(self, mask: int, after: Place = NEAR) -> Iterator[Cohort]:
        """Those in the line for these devices that stand behind nobody, in their order, but for
        those that are FREE. Only those at places beyond `after`."""
        alone = [c for c in self._leading.values() if c.mask & mask and c.place > after]
        alone.sort(key=_place)
        sharing = self._sharing.from_place(after)
        return self._merged(alone, sharing, mask) if sharing else iter(alone)

    def _merged(
        self, alone: list[Cohort], sharing: Iterable[tuple[Place, Cohort]], mask: int
    ) -> Iterator[Cohort]:
        """Those of `alone`, and between them those of `sharing` that stand behind nobody."""
        heads = self._heads(mask)
        wanted = 0  # devices for which somebody who is ALONE has come already
        next_alone = next_head = 0
        for place, cohort in sharing:
            while next_alone < len(alone) and alone[next_alone].place < place:
                yield alone[next_alone]
                next_alone += 1
            while next_head < len(heads) and heads[next_head][0] < place:
                wanted |= heads[next_head][1]
                next_head += 1
            if wanted & mask == mask:
                break
            if cohort.mask & mask and not cohort.mask & wanted:
                yield cohort
        yield from alone[next_alone:]

    def _heads(self, mask: int) -> list[tuple[Place, int]]:
        """The first places of those that are ALONE, with the devices that they are for."""
        lines = self._lines[ALONE].items()
        return sorted((line.entries[0][0], bit) for bit, line in lines if bit & mask and line)

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
