"""What the controller of slices is told of a job, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

LONG_US, SHORT_US = 20_000, 50  # of a job whose bursts are not interrupted; of one beside it
TURN_US = 5000  # the mean slice of jobs that always have work
AS_MADE = 0  # as a slice: the driver's own
ALWAYS = 1000  # as a duty: in all of the time
PERIOD_MS = 20  # of a duty


@dataclass(frozen=True)
class Seen:
    """A job on one device. part: the part of the time since the last look in which the device
    worked for it; None: not known. processes: how many of its processes use the device. request,
    limit: the part of the device's time that it has at least and at most. wanted: in what part of
    the time in which it might run it had unfinished work, or more of it after a moment; None: not
    known."""

    part: float | None
    controlled: bool
    holds: bool
    processes: int = 1
    request: float = 0.0
    limit: float = 1.0
    wanted: float | None = None

    @property
    def has_share(self) -> bool:
        return self.request > 0 or self.limit < 1


Runs = tuple[int, int, int, int, bool]


class Choice(NamedTuple):
    """slice_us: of each of its groups. duty: per mille of each period in which they may run;
    begins: when that begins, per mille; period_ms: how long each is; copies: the program's copies
    are held as its kernels are. why: a phrase for people."""

    slice_us: int
    duty: int
    why: str
    begins: int = 0
    period_ms: int = PERIOD_MS
    copies: bool = False

    @property
    def runs(self) -> Runs:
        """What its processes are told."""
        return self.slice_us, self.duty, self.begins, self.period_ms, self.copies


def as_made(why: str) -> Choice:
    return Choice(AS_MADE, ALWAYS, why)
