"""The time of the event that the arbiter handles, where those that measure can read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """now: ns of the one monotonic clock that events come with."""

    now: int = 0
