"""Whether a job wants all that it is given of a device.

A job that leaves all of its window, or much of it look after look, wants less, or waits for
something else meanwhile. That is tried: it may run at any time. If it then has its part, it wanted
more, and has its window again; the next try comes after a pause that doubles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.slices.pause import Pause

NOTHING, LITTLE = 0.02, 0.75  # of its window: who uses less may want no more
MUCH = 0.9  # of its part: who uses that at any time wants more
LOOKS = 2  # in which it leaves much
DOUBT_NS = 64_000_000_000  # the longest pause before the next try
IDLE_NS = 8_000_000_000  # and of one that leaves all of its window
SMOOTH = 0.5  # of a look


@dataclass
class Demand:
    """content: it wants less than its part, and uses so much of the time. little: in how many looks
    it has left much of its window. late: the next look tells of a time before."""

    content: bool = False
    uses: float = 0.0
    little: int = 0
    late: bool = False
    pause: Pause = field(default_factory=Pause)

    def look(self, now: int, wanted: float, part: float) -> None:
        """wanted: in what part of the time in which it might run it wanted to. part: what it is to
        have of the device, if it wants that."""
        if self.late:
            self.late = False
        elif self.content:
            self.uses += SMOOTH * (wanted - self.uses)
            if wanted >= MUCH * part:
                self.content, self.little, self.late = False, 0, True
                self.pause.begin(now, DOUBT_NS)
        else:
            self.little = self.little + 1 if wanted < LITTLE else 0
            if self._leaves(now, wanted):
                self.content, self.uses, self.late = True, wanted * part, True

    def _leaves(self, now: int, wanted: float) -> bool:
        """Whether it may be one that wants less than its window."""
        if wanted < NOTHING and now - self.pause.began >= IDLE_NS:
            return True
        return (wanted < NOTHING or self.little >= LOOKS) and self.pause.is_over(now)
