"""How long the handoffs of a device take, as a histogram."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

MS = 1_000_000
# The upper bounds of its buckets, in ns: a grant of managed memory takes next to nothing, and
# swapped memory moves at some 50 GiB/s.
BOUNDS_NS = tuple(
    MS * ms for ms in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 60_000)
)


def bucket_of(ns: int) -> int:
    """The number of the bucket for a handoff that took so long."""
    return bisect_left(BOUNDS_NS, ns)


@dataclass
class HandoffTimes:
    """counts: handoffs by bucket, the last for all that took longer; each counts in one only.
    sum_ns: of all of them."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_NS) + 1))
    sum_ns: int = 0

    def add(self, ns: int, bucket: int) -> None:
        """A handoff took so long. bucket: bucket_of() it."""
        self.counts[bucket] += 1
        self.sum_ns += ns
