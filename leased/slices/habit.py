"""Whether a job answers somebody: it works in bursts and leaves most of its part of a device.

NVML cannot say whether a job uses little because it wants no more, or because others take it all.
So a job that uses clearly less than its part is favored, and what it uses then is compared with
before: a job that wanted more now has more, and is not favored again before a pause that doubles.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import fmean

from leased.slices.pause import Pause

LITTLE = 0.75  # of its part: who uses less may be one that answers
MUCH = 0.9  # of its part: who uses that is none
EXAM = 3  # looks after which it is known whether a favored job has grown
GROWN, NOISE = 1.3, 0.03  # it has grown: so many times what it was, and NVML's resolution
MORE, ADDED = 1.5, 0.05  # it does something else than when it was examined
SILENT_NS = 30_000_000_000  # who has used nothing for so long does not count
RECENT = 4  # looks that are kept


@dataclass
class Habit:
    """recent: what it used at the last looks. before: what it used when it was not favored yet.
    looks: how many there were since it is favored. proven: what it has used without growing."""

    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT))
    favored: bool = False
    before: float = 0.0
    looks: int = 0
    proven: float = 0.0
    used_at: int | None = None
    pause: Pause = field(default_factory=Pause)

    @property
    def is_new(self) -> bool:
        return len(self.recent) < 2 and not self.favored

    def is_silent(self, now: int) -> bool:
        return self.used_at is not None and now - self.used_at >= SILENT_NS

    def look(self, now: int, used: float, own: float, most: int, contended: bool = True) -> None:
        """used: the part of the time in which the device worked for it since the last look. own:
        the part that it may have. most: the longest pause (ns). contended: whether others may keep
        it from using more."""
        self.recent.append(used)
        if used or self.used_at is None or now < self.used_at:
            self.used_at = now
        if self.favored:
            self._examine(now, used, own, most)
        elif (
            contended
            and len(self.recent) >= 2
            and max(list(self.recent)[-2:]) < LITTLE * own
            and self.pause.is_over(now)
            and not self.is_silent(now)
        ):
            self.favored, self.looks = True, 0
            self.before = fmean(list(self.recent)[-2:])

    def _examine(self, now: int, used: float, own: float, most: int) -> None:
        """Whether a favored job stays so."""
        self.looks += 1
        last = list(self.recent)[-2:]
        if used >= MUCH * own:
            self._lose(now, most)
        elif self.looks == EXAM:
            if fmean(last) > GROWN * self.before + NOISE:
                self._lose(now, most)
            else:
                self.proven = max(self.proven, fmean(last))
        elif self.looks > EXAM and min(last) > MORE * self.proven + ADDED:
            self._begin_anew()

    def _lose(self, now: int, most: int) -> None:
        self._begin_anew()
        self.pause.begin(now, most)

    def _begin_anew(self) -> None:
        """It is not favored, and what it uses so is not known."""
        self.favored, self.proven = False, 0.0
        self.recent.clear()
