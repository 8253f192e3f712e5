"""The moments at which what is done again and again is done."""

from __future__ import annotations


def to_next(period: float, now: float) -> float:
    """Seconds until the clock shows a multiple of the period. So what is done once a second is done
    when what is done twice a second is done too, and the process wakes as seldom as it can."""
    left = period - now % period
    return left if left > period / 10 else left + period  # a timer may be early
