"""The duty of offline jobs, by how long the work of online jobs takes beside them.

What it takes alone is seen while no other job is there, and learnt by stopping offline jobs for the
time between two looks: a few times at first where it is not known, and from then on for a hundredth
of the time. Where it takes longer than that by more than is allowed the duty is cut in proportion;
where it takes clearly less, the duty grows. It is changed by what is sure, since work differs by
itself, and not cut at all where little would be won: a switch of the GPU from one job to another
takes a part of a short burst, whatever the duty is. If even the least duty hardly helps, something
else slows the online job down; then the offline jobs have all their time, and a cut is tried again
after a pause that doubles.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.classes.pulse import KEPT_BESIDE, Mean, Pulse, Work
from leased.slices.job import ALWAYS
from leased.slices.pause import Pause

STOPPED = 0  # as a duty
LEAST = 50  # per mille
PRICE = 100  # offline jobs are stopped for one part in so many of the time
SOON_NS = 100_000_000  # after a look nothing new is known
LATE = 2  # looks until it is known what followed from one: processes answer at the next
FASTEST, SLOWEST, GROWTH = 0.5, 0.9, 1.1  # by which a duty changes at a look
FIRST = 4  # times in which it is learnt at first, without pauses of PRICE
WELL = 10  # looks
IN_VAIN = 12  # looks at the least duty
BEGIN = 1.5  # of what is allowed: where it is less a cut does not begin
HELPED = 0.5  # of the slowdown before the cuts: more left than that, and they were in vain
VAIN_NS = 600_000_000_000  # the longest pause after that


@dataclass
class Feedback:
    """Of one device. allowed: the slowdown. past: the duties of the last looks, the latest last.
    owed_ns: for how long offline jobs may still be stopped to learn. vain: looks at the least duty
    without an effect. uncut: the slowdown before the first cut."""

    allowed: float
    duty: float = ALWAYS
    pulses: dict[int, Pulse] = field(default_factory=dict)
    past: deque[float] = field(default_factory=lambda: deque(maxlen=LATE))
    looked_at: int | None = None
    owed_ns: float | None = None  # None: nothing has been learnt yet
    pause: Pause = field(default_factory=Pause)
    vain: int = 0
    uncut: float = 0.0

    def look(self, now: int, work: Mapping[int, Work | None]) -> int:
        """The duty of offline jobs from now on, per mille. work: of each online job, what its
        processes told of since the last look; None: they have not said any."""
        if self.past and self.looked_at is not None and 0 <= now - self.looked_at < SOON_NS:
            return round(self.past[-1])
        passed = self._begin(now, work)
        told = any(one is not None and one.calls for one in work.values())
        if self.past and self.past[-1] != STOPPED and told and self._may_stop(passed):
            chosen = float(STOPPED)
        else:
            self._steer(now)
            chosen = self.duty
        self.past.append(chosen)
        return round(chosen)

    def rest(self, now: int, work: Mapping[int, Work | None]) -> None:
        """No other job is beside the online ones."""
        self._begin(now, work)
        self.past.append(STOPPED)

    def learns(self, job: int) -> bool:
        """Whether it is not known well yet what the work of the online job takes alone."""
        return job not in self.pulses or self.pulses[job].alone.looks < WELL

    def _begin(self, now: int, work: Mapping[int, Work | None]) -> int:
        """Take in what is new. Returns how much time has passed since the last look, in ns."""
        self.pulses = {job: self.pulses.get(job, Pulse()) for job in work}
        passed = max(0, now - self.looked_at) if self.looked_at is not None else 0
        self.looked_at = now
        self._learn(work)
        return passed

    @property
    def slowdown(self) -> float | None:
        """Of the online job that is slowed down most; None: it is not known."""
        known = [one.slowdown for one in self.pulses.values()]
        return max((slowdown for slowdown in known if slowdown is not None), default=None)

    def _learn(self, work: Mapping[int, Work | None]) -> None:
        if len(self.past) < LATE:
            return
        alone = self.past[0] == STOPPED
        for job, one in work.items():
            pulse = self.pulses[job]
            if one is not None:
                (pulse.alone if alone else pulse.beside).add(one)

    def _may_stop(self, passed: int) -> bool:
        """Whether offline jobs are stopped until the next look."""
        if self.owed_ns is None:
            known = all(one.alone.known for one in self.pulses.values())
            self.owed_ns = 0.0 if known else FIRST * float(passed)
        self.owed_ns = min(self.owed_ns + passed / PRICE, FIRST * passed)
        if self.owed_ns < passed:
            return False
        self.owed_ns -= passed
        return True

    def _steer(self, now: int) -> None:
        slowdown = self.slowdown
        if slowdown is None or len(self.past) < LATE or STOPPED in self.past:
            return
        doubt = max(one.doubt for one in self.pulses.values() if one.slowdown is not None)
        if slowdown - doubt > self.allowed and self.duty <= LEAST:
            self._note_in_vain(now, slowdown)
        elif slowdown - doubt > self.allowed and self.pause.is_over(now):
            if self.duty == ALWAYS and slowdown < BEGIN * self.allowed:
                return
            if self.duty == ALWAYS:
                self.uncut = slowdown
            self._set(self.duty * max(FASTEST, min(SLOWEST, self.allowed / slowdown)))
        elif slowdown + doubt < self.allowed:
            self.vain = 0
            self._set(self.duty * GROWTH)

    def _set(self, duty: float) -> None:
        duty = max(LEAST, min(ALWAYS, duty))
        if duty != self.duty:
            self.duty = duty
            self._forget_beside()

    def _note_in_vain(self, now: int, slowdown: float) -> None:
        self.vain = self.vain + 1 if slowdown > HELPED * self.uncut else 0
        if self.vain >= IN_VAIN:
            self.vain = 0
            self.pause.begin(now, VAIN_NS)
            self._set(ALWAYS)

    def _forget_beside(self) -> None:
        """Work takes another time from now on."""
        for pulse in self.pulses.values():
            pulse.beside = Mean(KEPT_BESIDE)
