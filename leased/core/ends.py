"""When the leases of contended holders will have ended, by what the holders heed and by device."""

from __future__ import annotations

from collections.abc import Iterable

from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.deadlines import Deadlines


class Ends:
    """Of holders that fill no gap and are not revoked. Times are ns; devices are bits of a number.
    A device's latest end is found without looking at all of its holders."""

    def __init__(self, bits: Iterable[int]):
        bits = list(bits)
        self._last: dict[int, dict[int, Deadlines[int]]] = {
            heeds: {bit: Deadlines() for bit in bits} for heeds in (SHARE, ALONE)
        }
        self._of: dict[int, tuple[int, Cohort]] = {}  # by tenant
        self._moved = [0, 0, 0]

    def put(self, tenant: int, cohort: Cohort, end: int | None) -> None:
        """The lease of this tenant of the cohort ends then; None: unknown, or it has ended."""
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
        """Devices on which an end has changed since this was last asked, by what is heeded."""
        moved, self._moved = self._moved, [0, 0, 0]
        return moved

    def last(self, cohort: Cohort) -> int | None:
        """When the last lease will have ended of those that the cohort, which is not FREE, cannot
        run beside; None: there are none."""
        firsts = [
            self._last[heeds][bit].first()
            for heeds in ((SHARE, ALONE) if cohort.heeds == ALONE else (ALONE,))
            for bit in cohort.bits
        ]
        found = [first for first in firsts if first is not None]
        return -min(found) if found else None

    def sort_again(self) -> None:
        """Cohorts heed other modes than before, so all ends are sorted again."""
        for last in self._last.values():
            for ends in last.values():
                ends.clear()
        for tenant, (end, cohort) in self._of.items():
            self.put(tenant, cohort, end)
