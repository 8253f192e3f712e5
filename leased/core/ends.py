"""When those who hold, and have been told to go, will have ended, by what they heed and device."""

from __future__ import annotations

from collections.abc import Iterable

from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.deadlines import Deadlines


class Ends:
    """Of those that fill no gap and are not revoked. Times are ns; devices are bits of a number.
    A device's latest end is found without looking at all who hold it."""

    def __init__(self, bits: Iterable[int]):
        bits = list(bits)
        self._last: dict[int, dict[int, Deadlines[int]]] = {
            heeds: {bit: Deadlines() for bit in bits} for heeds in (SHARE, ALONE)
        }
        self._of: dict[int, tuple[int, Cohort]] = {}  # by tenant
        self._moved = [0, 0, 0]

    def put(self, tenant: int, cohort: Cohort, end: int | None) -> None:
        """The tenant, which is of that cohort, ends then; None: nobody knows, or it has ended."""
        if end is None:
            if self._of.pop(tenant, None) is None:
                return
        else:
            self._of[tenant] = end, cohort
        self._moved[cohort.heeds] |= cohort.mask
        if cohort.heeds != FREE:
            last = self._last[cohort.heeds]
            for bit in cohort.bits:
                last[bit].put(tenant, None if end is None else -end)

    def take_moved(self) -> list[int]:
        """Devices of those whose ends have changed since this was last asked, by what they heed."""
        moved, self._moved = self._moved, [0, 0, 0]
        return moved

    def last(self, cohort: Cohort) -> int | None:
        """When the last of those will have ended that one of this cohort, which is not FREE,
        cannot run beside; None: there are none."""
        firsts = [
            self._last[heeds][bit].first()
            for heeds in ((SHARE, ALONE) if cohort.heeds == ALONE else (ALONE,))
            for bit in cohort.bits
        ]
        found = [first for first in firsts if first is not None]
        return -min(found) if found else None

    def sort_again(self) -> None:
        """Cohorts heed something else than before."""
        for last in self._last.values():
            for ends in last.values():
                ends.clear()
        for tenant, (end, cohort) in self._of.items():
            self.put(tenant, cohort, end)
