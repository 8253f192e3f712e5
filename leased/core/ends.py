"""When the leases of contended holders will have ended, by what the holders heed and by device."""

from __future__ import annotations

from collections.abc import Iterable

from leased.core.by_device import is_wide
from leased.core.cohort import ALONE, FREE, SHARE, Cohort
from leased.core.deadlines import Deadlines
from leased.core.layers import Layers


class Ends:
    """The ends of holders that fill no gap and are not revoked. Times are ns; devices are bits
    of a number. A device's latest end is found without looking at all of its holders. Those of
    holders with few devices are kept at each of them."""

    def __init__(self, bits: Iterable[int]):
        bits = list(bits)
        self._ends: dict[int, dict[int, Deadlines[int]]] = {
            heeds: {bit: Deadlines() for bit in bits} for heeds in (SHARE, ALONE)
        }
        # The latest end on each device that has one: it is asked for more often than it changes.
        self._last: dict[int, dict[int, int]] = {SHARE: {}, ALONE: {}}
        self._wide = {SHARE: Layers(), ALONE: Layers()}  # by the ends, the latest first
        self._devices = len(bits)
        self._of: dict[int, tuple[int, Cohort]] = {}  # by tenant
        self._moved = [0, 0, 0]

    def put(self, tenant: int, cohort: Cohort, end: int | None) -> None:
        """The lease of this tenant of the cohort ends then; None: unknown, or it has ended."""
        before = self._of.pop(tenant, None)
        if end is not None:
            self._of[tenant] = end, cohort
        elif before is None:
            return
        self._moved[cohort.heeds] |= cohort.mask
        if cohort.heeds == FREE:
            return
        if not is_wide(cohort, self._devices):
            self._sort_in(tenant, cohort, end)
            return
        wide = self._wide[cohort.heeds]
        if before is not None:
            wide.remove(-before[0], tenant, cohort.mask)
        if end is not None:
            wide.add(-end, tenant, cohort.mask)

    def _sort_in(self, tenant: int, cohort: Cohort, end: int | None) -> None:
        ends, last = self._ends[cohort.heeds], self._last[cohort.heeds]
        negative = None if end is None else -end
        for bit in cohort.bits:
            of_device = ends[bit]
            of_device.put(tenant, negative)
            if end is not None and end >= last.get(bit, end):
                last[bit] = end
                continue
            first = of_device.first()
            if first is None:
                last.pop(bit, None)
            else:
                last[bit] = -first

    def take_moved(self) -> list[int]:
        """Devices on which an end has changed since this was last asked, by what is heeded."""
        moved, self._moved = self._moved, [0, 0, 0]
        return moved

    def last(self, cohort: Cohort) -> int | None:
        """When the last lease will have ended of those that the cohort, which is not FREE, cannot
        run beside; None: there are none."""
        found = None
        for heeds in (ALONE, SHARE) if cohort.heeds == ALONE else (ALONE,):
            wide, last = self._wide[heeds].first(cohort.mask), self._last[heeds]
            if wide is not None and (found is None or -wide > found):
                found = -wide
            for bit in cohort.bits if last else ():
                end = last.get(bit)
                if end is not None and (found is None or end > found):
                    found = end
        return found

    def sort_again(self) -> None:
        """Cohorts heed other modes than before, so all ends are sorted again."""
        for heeds, of_devices in self._ends.items():
            self._last[heeds].clear()
            self._wide[heeds] = Layers()
            for ends in of_devices.values():
                ends.clear()
        of, self._of = self._of, {}
        for tenant, (end, cohort) in of.items():
            self.put(tenant, cohort, end)
