"""MuxFlow's controller of the duty of offline jobs: by the load of the GPU, which is its
utilisation times a clock factor.

Where the clock is below a threshold the GPU throttles, and the factor is above 1, by much; above
it the factor is below 1, by little. Offline jobs are slowed down so that the load is what is wanted
(a proportional, integral and derivative controller). It knows nothing of what online jobs need.
"""

from __future__ import annotations

from dataclasses import dataclass

from leased.slices.job import ALWAYS

THRESHOLD = 0.75  # of the highest clock
LOW, HIGH = 4.0, 0.2  # how much the factor changes below the threshold, and above it
WANTED = 0.9  # load
PROPORTIONAL, INTEGRAL, DERIVATIVE = 0.5, 0.2, 0.1
LEAST = 50  # per mille


def factor(clock: float) -> float:
    """clock: as a part of the highest one."""
    if clock < THRESHOLD:
        return 1 + LOW * (THRESHOLD - clock) / THRESHOLD
    return 1 - HIGH * (clock - THRESHOLD) / (1 - THRESHOLD)


@dataclass
class Pid:
    """Of one device. sum: of the errors. last: the error of the last look."""

    sum: float = 0.0
    last: float = 0.0

    def look(self, busy: float, clock: float = 1.0) -> int:
        """The duty of offline jobs from now on, per mille. busy: the part of the time in which the
        GPU worked. clock: as a part of the highest one."""
        error = WANTED - busy * factor(clock)
        self.sum = max(-1 / INTEGRAL, min(0.0, self.sum + error))
        part = 1 + PROPORTIONAL * error + INTEGRAL * self.sum + DERIVATIVE * (error - self.last)
        self.last = error
        return round(max(LEAST, min(ALWAYS, part * ALWAYS)))
