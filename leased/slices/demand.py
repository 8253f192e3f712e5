"""Whether a job with less than its part of a device wants more.

A job may have less because it wants no more, or because others take it: what NVML says of both is
the same. So where a job lacks much of its part, the others are pushed back for a moment to what is
theirs. A job that then still uses little wants no more, if it uses no less once the others are let
go again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from statistics import fmean

from leased.slices.pause import Pause

LITTLE, MUCH = 0.75, 0.9  # of its part: who uses less may want no more; who uses more wants it
LOOKS = 2  # that a push lasts, and that it is looked at what follows
FALLEN, NOISE = 0.75, 0.03  # it uses less than before: so many times, and NVML's resolution
RISES = 0.02  # from one look to the next: it is on its way to its part
DOUBT_NS = 4_000_000_000  # the longest pause before others are pushed back again


class Order(Enum):
    """Push the others back to what is theirs; let them go; cut them as far as it needs."""

    PUSH = 1
    LET_GO = 2
    CUT = 3


@dataclass
class Demand:
    """pushing: the others are pushed back for it. wants: what it uses at most, once that is known.
    looks: how many there were since one of them began. before, reached: what it used before the
    last push, and in it."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=LOOKS))
    pushing: bool = False
    wants: float | None = None
    looks: int = 0
    before: float = 0.0
    reached: float = 0.0
    pause: Pause = field(default_factory=Pause)

    def look(self, now: int, used: float, part: float) -> Order | None:
        """used: the part of the time in which the device worked for it since the last look. part:
        what it is to have. What is to be done for it; None: nothing else than before."""
        self.recent.append(used)
        self.looks += 1
        if self.pushing:
            return self._pushed(now, part) if self.looks >= LOOKS else None
        if self.wants is not None:
            return self._watch(now, used, part)
        lacks = len(self.recent) == LOOKS and max(self.recent) < LITTLE * part
        rises = self.recent[-1] > self.recent[0] + RISES
        if not lacks or rises or not self.pause.is_over(now):
            return None
        self.pushing, self.looks, self.before = True, 0, fmean(self.recent)
        return Order.PUSH

    def _pushed(self, now: int, part: float) -> Order:
        self.pushing, self.looks, self.reached = False, 0, fmean(self.recent)
        if self.reached >= LITTLE * part:
            self.pause.begin(now, DOUBT_NS)
            return Order.CUT
        self.wants = self.reached
        return Order.LET_GO

    def forget(self) -> None:
        """It is cut itself: what it uses now says nothing."""
        self.recent.clear()

    def way(self, part: float) -> float:
        """How far the others are to be cut so that it has its part: 0: as before the push, 1: as in
        it."""
        more = self.reached - self.before
        return max(0.0, min(1.0, (part - self.before) / more)) if more > NOISE else 1.0

    def _watch(self, now: int, used: float, part: float) -> Order | None:
        """Whether it still wants no more."""
        if used >= MUCH * part:
            self.wants = None
        elif self.looks == LOOKS and fmean(self.recent) < FALLEN * (self.wants or 0.0) - NOISE:
            self.wants = None
            self.pause.begin(now, DOUBT_NS)
            return Order.PUSH
        return None
