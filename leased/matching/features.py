"""What of two profiles decides how fast the pair is, as numbers.

Where time slices divide a device, one job's work is on it at a time. So what the offline program
gets is what the online one leaves; and the online one is slowed by the switch of the device to it,
once for each burst, if the offline one is at work just then.
"""

from __future__ import annotations

from leased.matching.profile import Profile

LEAST_BUSY = 0.02  # of the time: below it a program's profile says hardly more than that it waits
LEAST_MS = 0.1  # of a burst
IDLE = 0.05  # of the time: servers that work for less are taken to have short bursts
USAGE = "usage"  # features of what the accounting of jobs has
WHOLE = "whole"  # of whole profiles: the online program's bursts are known


def left_over(online: Profile, offline: Profile) -> float:
    """The part of its speed alone that the offline program would have if it got exactly the time
    that the online one leaves, without a loss."""
    return min(1.0, (1 - min(1.0, online.busy)) / max(LEAST_BUSY, offline.busy))


def features(online: Profile, offline: Profile, kind: str) -> list[float]:
    """kind: USAGE or WHOLE. The first is always 1."""
    left = left_over(online, offline)
    if kind == USAGE:
        both = online.busy * offline.busy
        return [1.0, left, online.busy, offline.busy, both, 1 / (IDLE + online.busy)]
    often = 1 / max(LEAST_MS, online.burst_ms or 0)
    return [1.0, left, often, often * offline.busy]
