"""The duty of offline jobs, by how long the work of online jobs takes beside them.

What it takes alone is learnt by stopping offline jobs for the time between two looks: a few times
at first, in a bout; once more where that seems to be wrong, or before a cut; and for a hundredth of
the time, which is saved for another bout while there is such a doubt. The duty is what keeps the
slowdown at what is allowed, less what is not known of it. A job may always be slowed down by what
switches of the GPU cost it (pulse.py): a cut of half of the offline jobs' time would save a short
burst a hundredth of its own.

Before the duty is cut it has to be sure that the work is slowed down at all, and a fifth of the
time or less is tried for a moment, since something else may be the cause. A lower duty shows that
sooner, and so costs offline jobs less. Where a cut hardly helps they have all their time, and it is
tried again after a pause that doubles, or where the work has become much slower since.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.classes.pulse import Pulse, Work
from leased.slices.job import ALWAYS
from leased.slices.pause import Pause

STOPPED = 0  # as a duty
LEAST = 50  # per mille
PRICE = 100  # offline jobs are stopped for one part in so many of the time
SOON_NS = 100_000_000  # after a look nothing new is known
LATE = 2  # looks until it is known what followed from one: processes answer at the next
FASTEST, GROWTH = 0.5, 1.1  # by which a duty changes at a look
# Of a duty: it is not changed by less. What is gained by a growth is not lost by chance.
CUT, GROWN = 0.02, 0.1
FIRST = 8  # looks, one after the other, of a bout, in which it is learnt at first, and anew
BOUTS = 2  # that need not wait until there is time for them by PRICE
MARGIN = 0.2  # of what is allowed, at most, for what is not known
SURE = 2.0  # standard errors: it is slowed down at all, or by as much
TINY = 0.02  # of what is allowed
HALF = ALWAYS // 2  # a duty from which on it is seen whether cuts help
TRIED = ALWAYS // 5  # the duty of a trial, at most
BEFORE, TRIAL = 16, 12  # looks
WORSE = 2.0  # times as slow as when cuts were in vain
IN_VAIN = 10  # looks, one after the other
HELPED = 0.35  # of what was to be expected: a cut that saves less is in vain
AGAIN_NS, VAIN_NS = 300_000_000_000, 600_000_000_000  # the first and the longest pause after that


@dataclass
class Feedback:
    """Of one device. allowed: the slowdown, besides switches. past: the duties of the last looks,
    the latest last. owed_ns: for how long offline jobs may be stopped to learn. bout: looks that
    are left of one in which what the work takes alone is learnt anew. free: bouts that need no time
    of owed_ns. checked: there was one before the next trial. in_vain: a cut was, and there was none
    since. vain: looks in which the duty helped too little. trial: looks that are left of it. helps:
    the last one was not in vain. tried: how slow the work was when one was."""

    allowed: float
    duty: float = ALWAYS
    pulses: dict[int, Pulse] = field(default_factory=dict)
    past: deque[float] = field(default_factory=lambda: deque(maxlen=LATE))
    looked_at: int | None = None
    owed_ns: float = 0.0
    bout: int = 0
    free: int = BOUTS
    checked: bool = False
    in_vain: bool = False
    pause: Pause = field(default_factory=lambda: Pause(first=AGAIN_NS))
    vain: int = 0
    trial: int = 0
    helps: bool = False
    tried: float = 0.0

    def look(self, now: int, work: Mapping[int, Work | None]) -> int:
        """The duty of offline jobs from now on, per mille. work: of each online job, what its
        processes told of since the last look; None: they have not said any."""
        if self.past and self.looked_at is not None and 0 <= now - self.looked_at < SOON_NS:
            return round(self.past[-1])
        passed = self._begin(now, work)
        told = any(one is not None and one.calls for one in work.values())
        if self.past and told and self._stops(now, passed):
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

    def _begin(self, now: int, work: Mapping[int, Work | None]) -> int:
        """Take in what is new. Returns how much time has passed since the last look, in ns."""
        if self.pulses.keys() != work.keys():
            self.helps, self.checked, self.free = False, False, BOUTS
        self.pulses = {job: self.pulses.get(job, Pulse()) for job in work}
        passed = max(0, now - self.looked_at) if self.looked_at is not None else 0
        self.looked_at = now
        self.owed_ns = min(self.owed_ns + passed / PRICE, float(FIRST * passed))
        self._learn(work)
        return passed

    @property
    def slowdown(self) -> float | None:
        """Of the online job that is slowed down most; None: it is not known."""
        known = [one.slowdown(self.duty / ALWAYS) for one in self.pulses.values()]
        return max((slowdown for slowdown in known if slowdown is not None), default=None)

    @property
    def excess(self) -> float | None:
        """How many times as slowed down as is allowed a job surely is, at most; None: it is not
        known."""
        sure = (slowdown - SURE * doubt for slowdown, doubt in self._pulses())
        return max(sure, default=None)

    def _learn(self, work: Mapping[int, Work | None]) -> None:
        if len(self.past) < LATE:
            return
        for job, one in work.items():
            if one is not None:
                self.pulses[job].add(one, self.past[0] / ALWAYS)

    def _stops(self, now: int, passed: int) -> bool:
        """Whether offline jobs are stopped until the next look. Where what is known is in doubt
        their time is saved for a bout."""
        if self.bout:
            return self._goes_on()
        doubtful = self._is_doubtful(now)
        if (doubtful or self._is_other_work()) and self._may_learn(passed):
            return self._begin_bout()
        if doubtful or self.owed_ns < passed:
            return False
        self.owed_ns -= passed
        return True

    def _may_learn(self, passed: int) -> bool:
        """Whether there is time for a bout, which is taken."""
        if self.free:
            self.free -= 1
        elif self.owed_ns >= FIRST * passed:
            self.owed_ns = 0.0
        else:
            return False
        return True

    def _begin_bout(self) -> bool:
        self.bout, self.in_vain, self.checked = FIRST + LATE, False, self.slowdown is not None
        for one in self.pulses.values():
            one.begin_learning()
        return self._goes_on()

    def _goes_on(self) -> bool:
        """A look more of the bout. Whether offline jobs are stopped until the next one."""
        self.bout -= 1
        if not self.bout:
            for one in self.pulses.values():
                one.end_learning()
        return self.bout >= LATE

    def _is_doubtful(self, now: int) -> bool:
        """Whether what the work takes alone is not known, or cannot be what is known of it: it does
        not become faster beside others, and slower in proportion to their duty. Also before a cut,
        once: what a program does while it starts tells little of what it does later."""
        if self.in_vain or any(not one.alone.known for one in self.pulses.values()):
            return True
        told = any(one.beside.has(BEFORE) for one in self.pulses.values())
        if told and any(slowdown < -2 * SURE * doubt for slowdown, doubt in self._pulses()):
            return True
        return not (self.helps or self.checked) and self._wants_cut(now)

    def _is_other_work(self) -> bool:
        """Whether a job does other work by now than that of which it is known what it takes."""
        known = [one for one in self.pulses.values() if one.slowdown(1.0) is not None]
        return any(one.beside.has(BEFORE) and one.is_other_work for one in known)

    def _steer(self, now: int) -> None:
        if self.slowdown is None or len(self.past) < LATE or STOPPED in self.past:
            return
        if self.duty == ALWAYS:
            if self._wants_cut(now):
                self._begin_cut()
            return
        self.trial -= self.trial > 0
        if self.trial == TRIAL - LATE + 1:  # from the next look on it is known what the trial does
            for one in self.pulses.values():
                one.begin_trial()
        self.vain = self.vain + 1 if self._helps_little() else 0
        if self.vain >= IN_VAIN or (self.vain and self.trial == 1):
            self._end_cut(now)
        elif not self.trial:
            self.helps = True
            self._set(self.duty / max(self._most(), TINY))

    def _wants_cut(self, now: int) -> bool:
        uncut = self.duty == ALWAYS
        return uncut and self._may_try(now) and self._sure() and self._most() > 1

    def _may_try(self, now: int) -> bool:
        slowdown = self.slowdown
        return self.pause.is_over(now) or (slowdown or 0.0) > WORSE * self.tried

    def _begin_cut(self) -> None:
        self.vain = 0
        for one in self.pulses.values():
            one.begin_cut()
        if self.helps:
            self._set(ALWAYS / self._most())
        else:
            self.trial = TRIAL
            self.duty = max(LEAST, min(TRIED, ALWAYS / self._most()))

    def _end_cut(self, now: int) -> None:
        self.tried = max(one.uncut for one in self.pulses.values())
        self.duty, self.trial, self.helps = ALWAYS, 0, False
        self.in_vain, self.checked = True, False
        for one in self.pulses.values():
            one.end_cut()
        self.pause.begin(now, VAIN_NS)

    def _helps_little(self) -> bool:
        """Whether the duty saves hardly anything of the slowdown before the cuts, though it is
        low enough to tell."""
        duty = self.duty / ALWAYS
        known = [one for one in self.pulses.values() if one.slowdown(duty) is not None]
        if self.duty > HALF or not all(one.lately.known for one in known):
            return False
        uncut = max(one.uncut for one in known)
        return uncut - self._left() < HELPED * (1 - duty) * uncut

    def _left(self) -> float:
        """How slow the work is lately. Only while that is known."""
        return max(one.lately.steep * self.duty / ALWAYS for one in self.pulses.values())

    def _pulses(self) -> list[tuple[float, float]]:
        """The slowdown of each job of which it is known, and its standard error, both in units of
        what is allowed."""
        duty, found = self.duty / ALWAYS, []
        for one in self.pulses.values():
            slowdown = one.slowdown(duty)
            if slowdown is not None:
                allowed = max(self.allowed, one.switches)
                found.append((slowdown / allowed, one.doubt(duty) / allowed))
        return found

    def _sure(self) -> bool:
        """Whether a job is slowed down, and that is no chance. Before a trial it has to be known by
        how much, since that tells whether the trial is in vain."""
        told = self.helps or any(one.beside.has(BEFORE) for one in self.pulses.values())
        return told and any(slowdown > SURE * doubt for slowdown, doubt in self._pulses())

    def _most(self) -> float:
        """What the slowdown may be, at most, in units of what is allowed."""
        return max(slowdown + min(doubt, MARGIN) for slowdown, doubt in self._pulses())

    def _set(self, duty: float) -> None:
        if not 1 - CUT <= duty / self.duty <= 1 + GROWN:
            duty = max(FASTEST * self.duty, min(GROWTH * self.duty, duty))
            self.duty = max(LEAST, min(ALWAYS, duty))
