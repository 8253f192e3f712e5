"""What the controller of slices is told of a job, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

MADE_US = 2048  # the driver's own slice of a group that computes
LONG_US, SHORT_US = 20_000, 50  # of a job whose bursts are not interrupted; of one beside it
TURN_US = 5000  # the mean slice of jobs that always have work
LEAST = 0.0075  # of the time: NVML says whole percents
AS_MADE = 0  # as a slice: the driver's own
ALWAYS = 1000  # as a duty: in all of the time


@dataclass(frozen=True)
class Seen:
    """A job on one device. part: the part of the time since the last look in which the device
    worked for it; None: not known. processes: how many of its processes it worked for. request,
    limit: the part of the device's time that it has at least and at most."""

    part: float | None
    controlled: bool
    holds: bool
    processes: int = 1
    request: float = 0.0
    limit: float = 1.0

    @property
    def has_share(self) -> bool:
        return self.request > 0 or self.limit < 1


class Choice(NamedTuple):
    """slice_us: of each of its groups. duty: per mille of the time in which they may run. why: a
    phrase for people."""

    slice_us: int
    duty: int
    why: str


def as_made(why: str) -> Choice:
    return Choice(AS_MADE, ALWAYS, why)
