"""What of two profiles decides how fast the pair is, as numbers."""

from __future__ import annotations

import math

from leased.matching.profile import Profile

LEAST_BUSY = 0.02  # of the time: below it a program's profile says hardly more than that it waits
LEAST_MS = 0.01  # of a kernel
USAGE = "usage"  # features of what the accounting of jobs has
WHOLE = "whole"  # of whole profiles


def left_over(online: Profile, offline: Profile) -> float:
    """The part of its speed alone that the offline program would have if it got exactly the time
    that the online one leaves, without a loss."""
    return min(1.0, (1 - min(1.0, online.busy)) / max(LEAST_BUSY, offline.busy))


def half(online: Profile, offline: Profile) -> float:
    """The same if it got at least half of the time, as by equal time slices."""
    left = max(0.5, 1 - min(1.0, online.busy))
    return min(1.0, left / max(LEAST_BUSY, offline.busy))


def features(online: Profile, offline: Profile, kind: str) -> list[float]:
    """kind: USAGE or WHOLE. The first is always 1."""
    left, both = left_over(online, offline), online.busy * offline.busy
    fair = half(online, offline)
    usage = [1.0, left, left * left, fair, fair * fair, online.busy, offline.busy, both]
    if kind == USAGE:
        return usage
    long_on, long_off = _length(online), _length(offline)
    return [
        *usage,
        *(long_on, long_off, online.busy * long_off, offline.busy * long_on),
        (online.bandwidth or 0) * (offline.bandwidth or 0),
        online.copies or 0,
        offline.copies or 0,
        (online.copies or 0) * (offline.copies or 0),
    ]


def _length(profile: Profile) -> float:
    """Of its kernels, so that ten times as long is one more."""
    return math.log10(max(LEAST_MS, profile.kernel_ms or 0))
