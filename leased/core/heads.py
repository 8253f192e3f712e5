"""Who is the first in the line on each device."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable

from leased.core.bits import bits_of
from leased.core.by_device import is_wide
from leased.core.cohort import Cohort
from leased.core.layers import Layers
from leased.core.line import Place


class Heads:
    """Cohorts at their places. Those with few devices are kept at each of these, in order; of
    those with many there are layers (layers.py). Devices are bits of a number."""

    def __init__(self, bits: Iterable[int]) -> None:
        self._places: dict[int, list[Place]] = {bit: [] for bit in bits}
        self._there = 0  # the devices that have any there
        self._wide = Layers()

    def add(self, place: Place, cohort: Cohort) -> None:
        """A cohort comes to this place, where none is."""
        if is_wide(cohort, len(self._places)):
            self._wide.add(place, 0, cohort.mask)
            return
        for bit in cohort.bits:
            insort(self._places[bit], place)
        self._there |= cohort.mask

    def remove(self, place: Place, cohort: Cohort) -> None:
        """The cohort goes from this place."""
        if is_wide(cohort, len(self._places)):
            self._wide.remove(place, 0, cohort.mask)
            return
        for bit in cohort.bits:
            places = self._places[bit]
            del places[bisect_left(places, place)]
            if not places:
                self._there ^= bit

    def first(self, mask: int) -> Place | None:
        """The first place for one of these devices; None: nobody is there."""
        found = self._wide.first(mask)
        for bit in bits_of(mask & self._there):
            place = self._places[bit][0]
            if found is None or place < found:
                found = place
        return found

    def before(self, place: Place, mask: int) -> int:
        """Those of these devices on which somebody comes before this place."""
        found = self._wide.before(place) & mask
        for bit in bits_of(mask & self._there & ~found):
            if self._places[bit][0] < place:
                found |= bit
        return found

    def is_any_before(self, place: Place, mask: int) -> bool:
        """Somebody comes before this place on one of these devices."""
        if self._wide.before(place) & mask:
            return True
        return any(self._places[bit][0] < place for bit in bits_of(mask & self._there))

    def all(self, mask: int) -> list[tuple[Place, int]]:
        """The first places on these devices, each with some of the devices. Some others may be
        among them."""
        found = [(place, devices & mask) for place, devices in self._wide.heads() if devices & mask]
        return found + [(self._places[bit][0], bit) for bit in bits_of(mask & self._there)]

    def few(self, mask: int, most: int) -> set[Place] | None:
        """All places for these devices; None: there are more than so many for one of them."""
        if len(self._wide) > most:
            return None
        found = set(self._wide.on(mask))
        for bit in bits_of(mask & self._there):
            places = self._places[bit]
            if len(places) > most:
                return None
            found.update(places)
        return found
