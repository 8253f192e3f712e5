"""Which jobs do not do what was chosen for them: a program may set its own slices.

A job has no more of a device than the part of the time in which it may run. One that has more, look
after look, does not keep to it, whatever its processes say. NVML knows that while nobody else has
work: where several have, it does not say whose the device does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.slices.job import ALWAYS, Choice, Seen

MORE, ADDED = 1.25, 0.05  # what it has: so many times what it may have, and NVML's resolution
LOOKS = 4  # one after the other
LATE = 3  # looks until NVML shows what was chosen


@dataclass
class Obedience:
    """duties: by job, the last ones. over: for how many looks it has had more. caught: those that
    do not keep to it, until they leave the device."""

    duties: dict[int, deque[int]] = field(default_factory=dict)
    over: dict[int, int] = field(default_factory=dict)
    caught: set[int] = field(default_factory=set)

    def look(self, jobs: Mapping[int, Seen], chosen: Mapping[int, Choice]) -> None:
        """chosen: before this look."""
        none: deque[int] = deque([ALWAYS] * LATE, LATE)
        self.duties = {job: self.duties.get(job, none.copy()) for job in jobs}
        for job, seen in jobs.items():
            self.duties[job].append(chosen[job].duty if job in chosen else ALWAYS)
            most = max(self.duties[job]) / ALWAYS * MORE + ADDED
            alone = all(other.wanted == 0 for each, other in jobs.items() if each != job)
            over = alone and seen.controlled and seen.part is not None and seen.part > most
            self.over[job] = self.over.get(job, 0) + 1 if over else 0
        self.over = {job: looks for job, looks in self.over.items() if job in jobs}
        self.caught = {job for job in jobs if job in self.caught or self.over[job] >= LOOKS}
