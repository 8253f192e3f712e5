"""How much host memory is made ahead of handoffs, and for which job it is made next. Pure.

The memory grows a slice at a time, within a limit, for the job that has the smallest part of what
it may need. It shrinks when a job has needed less for KEPT_NS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SLICE = 64 << 20  # bytes
KEPT_NS = 5_000_000_000  # memory that is no longer needed is kept for so long

Place = tuple[int, str]  # a job and one of its devices, by UUID


@dataclass
class Line:
    """told: by place, bytes to be made. low: by place, since when less is needed, in ns."""

    told: dict[Place, int] = field(default_factory=dict)
    low: dict[Place, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """Bytes of all places together."""
        return sum(self.told.values())

    def of_job(self, job_id: int) -> int:
        """Bytes of the job for all its devices."""
        return sum(size for (job, _), size in self.told.items() if job == job_id)

    def enter(self, wanted: Mapping[Place, int], held: Mapping[int, int]) -> None:
        """Add and remove places.

        wanted: by place, the bytes that may be needed; these are all places. held: by job, the
        bytes that it has, also from a previous daemon.
        """
        for gone in self.told.keys() - wanted.keys():
            del self.told[gone]
            self.low.pop(gone, None)
        for place in sorted(wanted.keys() - self.told.keys(), key=lambda p: (-wanted[p], p)):
            left = max(0, held.get(place[0], 0) - self.of_job(place[0]))
            self.told[place] = min(left, wanted[place]) if wanted[place] else left

    def advance(self, wanted: Mapping[Place, int], most: int, allowance: int, now: int) -> None:
        """wanted: as in enter(). most: bytes of all places together. allowance: bytes by which
        they may grow together now. now: in ns."""
        self._shrink(wanted, now)
        left = min(allowance, most - self.total)
        while left > 0:
            lacking = {p: size for p, size in wanted.items() if self.told[p] < size}
            if not lacking:
                return
            first = min(lacking, key=lambda p: (self.told[p] / lacking[p], p))
            more = min(SLICE, left, lacking[first] - self.told[first])
            self.told[first] += more
            left -= more

    def _shrink(self, wanted: Mapping[Place, int], now: int) -> None:
        for place, size in self.told.items():
            want = wanted[place]
            if size <= want:
                self.low.pop(place, None)
            elif now - self.low.setdefault(place, now) >= KEPT_NS:
                self.told[place] = want
                del self.low[place]
