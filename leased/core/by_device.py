"""Cohorts found by their devices, without a look at each. Devices are bits of a number."""

from __future__ import annotations

from leased.core.bits import bits_of
from leased.core.cohort import Cohort

WIDE = 8  # a cohort with more devices has something to do with most questions
PART = 4  # where there are very many devices, one that has at least this part of them


def is_wide(cohort: Cohort, devices: int) -> bool:
    """Whether the cohort has most of its devices in common with others of which that is so.
    devices: how many there are."""
    return len(cohort.bits) > max(WIDE, devices // PART)


class ByDevice:
    """A cohort with few devices is kept at each of them, one with many in a list that every
    question goes through. So neither a change nor a question costs as much as there are devices."""

    def __init__(self) -> None:
        self._narrow: dict[int, Cohort] = {}
        self._wide: dict[int, Cohort] = {}
        self._at: dict[int, dict[int, Cohort]] = {}  # by device, of the narrow ones

    def __contains__(self, cohort: Cohort) -> bool:
        return cohort.number in self._of_width(cohort)

    def add(self, cohort: Cohort) -> None:
        """Add a cohort; one that is there already is ignored."""
        among = self._of_width(cohort)
        if cohort.number in among:
            return
        among[cohort.number] = cohort
        if among is self._narrow:
            for bit in cohort.bits:
                self._at.setdefault(bit, {})[cohort.number] = cohort

    def remove(self, cohort: Cohort) -> bool:
        """Remove a cohort. Returns whether it was there."""
        among = self._of_width(cohort)
        if among.pop(cohort.number, None) is None:
            return False
        if among is self._narrow:
            for bit in cohort.bits:
                at = self._at[bit]
                del at[cohort.number]
                if not at:
                    del self._at[bit]
        return True

    def clear(self) -> None:
        for index in (self._narrow, self._wide, self._at):
            index.clear()

    def on(self, mask: int) -> dict[int, Cohort]:
        """The cohorts with one of these devices by their numbers, in no order."""
        found = {n: cohort for n, cohort in self._wide.items() if cohort.mask & mask}
        if not mask or mask.bit_count() >= len(self._narrow):
            found |= {n: cohort for n, cohort in self._narrow.items() if cohort.mask & mask}
            return found
        for bit in bits_of(mask):
            if bit in self._at:
                found |= self._at[bit]
        return found

    def _of_width(self, cohort: Cohort) -> dict[int, Cohort]:
        return self._wide if len(cohort.bits) > WIDE else self._narrow
