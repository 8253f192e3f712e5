"""Finds the cohorts that want no taken device, without looking at each cohort.

Each cohort has a seat, which is a bit of a number; for each device there is a number with the
seats of those that want it. So who wants a device that is taken goes with one operation for each
device, however many want it. Devices are bits of a number too.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.core.bits import bits_of
from leased.core.cohort import Cohort

SEATS = 512  # of one row, so that no number grows beyond what is quick to use
FULL = (1 << SEATS) - 1
FEW = 8  # devices, and those who want them, that are best looked at one by one


@dataclass
class Row:
    """cohorts: by seat. used: the seats that they have. wanted: by device, by whom. able: the seats
    of those that want none of the devices that were `taken` when that was last asked."""

    cohorts: dict[int, Cohort] = field(default_factory=dict)
    used: int = 0
    wanted: dict[int, int] = field(default_factory=dict)
    able: int = 0
    taken: int = 0

    def add(self, cohort: Cohort) -> int:
        """Give the cohort a free seat, of which there must be one. Returns the seat."""
        seat = ~self.used & (self.used + 1)
        self.used |= seat
        self.cohorts[seat] = cohort
        wanted = self.wanted
        for bit in cohort.bits:
            wanted[bit] = wanted.get(bit, 0) | seat
        if not cohort.mask & self.taken:
            self.able |= seat
        return seat

    def remove(self, seat: int) -> None:
        self.used ^= seat
        self.able &= ~seat
        wanted = self.wanted
        for bit in self.cohorts.pop(seat).bits:
            left = wanted[bit] ^ seat
            if left:
                wanted[bit] = left
            else:
                del wanted[bit]

    def free(self, mask: int, taken: int) -> list[Cohort]:
        """The cohorts that want one of the devices of the mask and none of those that are taken."""
        if mask.bit_count() <= FEW:
            wanting = 0
            for bit in bits_of(mask):
                wanting |= self.wanted.get(bit, 0)
            if wanting.bit_count() <= FEW:
                found = [self.cohorts[seat] for seat in bits_of(wanting)]
                return [cohort for cohort in found if not cohort.mask & taken]
        return [cohort for cohort in self._free_anywhere(taken) if cohort.mask & mask]

    def _free_anywhere(self, taken: int) -> list[Cohort]:
        """The cohorts that want none of the devices that are taken."""
        if not self._follow(taken):
            self.able = self._find_able(taken)
        self.taken = taken
        if self.able == self.used:
            return list(self.cohorts.values())
        return [self.cohorts[seat] for seat in bits_of(self.able)]

    def _find_able(self, taken: int) -> int:
        left = self.used
        for bit, seats in self.wanted.items():
            if bit & taken:
                left &= ~seats
                if not left:
                    break
        return left

    def _follow(self, taken: int) -> bool:
        """Bring `able` up to date if only few devices are taken, or free, that were not so before,
        and only few want those that are free. Returns whether it is."""
        changed = taken ^ self.taken
        if changed.bit_count() > FEW:
            return False
        again = 0
        for bit in bits_of(changed):
            seats = self.wanted.get(bit, 0)
            if bit & taken:
                self.able &= ~seats
            else:
                again |= seats
        if again.bit_count() > FEW:
            return False
        for seat in bits_of(again):
            if not self.cohorts[seat].mask & taken:
                self.able |= seat
        return True


class Seats:
    """Rows are made as they are needed, and removed when they are empty."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._seats: dict[int, tuple[Row, int]] = {}  # by the cohort's number

    def __len__(self) -> int:
        return len(self._seats)

    def add(self, cohort: Cohort) -> None:
        row = next((row for row in self._rows if row.used != FULL), None)
        if row is None:
            row = Row()
            self._rows.append(row)
        self._seats[cohort.number] = row, row.add(cohort)

    def remove(self, cohort: Cohort) -> None:
        row, seat = self._seats.pop(cohort.number)
        row.remove(seat)
        if not row.used:
            self._rows.remove(row)

    def free(self, mask: int, taken: int) -> list[Cohort]:
        """Those that want one of the devices of the mask and none of those that are taken, in no
        order."""
        return [cohort for row in self._rows for cohort in row.free(mask, taken)]
