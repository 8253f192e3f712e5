"""How jobs run side by side where one of them is online. It reads no clock and does no input.

- The bursts of an online job are not interrupted: its slices are long. It gives them away as soon
  as a burst is over.
- Other jobs have slices as short as serve: an online job waits for one of each at most. Where there
  are several their slices are longer, since switches between them cost each of them much. So is
  that of a job without a class beside an online one that never idles, which gets little else.
- Offline jobs run and copy in a part of the time only, where slices alone do not keep the online
  job's latency (feedback.py, or pid.py).

Without an online job it is leased/slices that chooses.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from leased.classes.feedback import Feedback
from leased.classes.pid import Pid
from leased.classes.pulse import Work
from leased.core.classes import OFFLINE, ONLINE
from leased.slices.controller import Controller as Slices
from leased.slices.job import ALWAYS, AS_MADE, LONG_US, SHORT_US, Choice, Seen

SEVERAL_US = 1000  # of each of several jobs beside an online one
NEVER_IDLES, LOOKS = 0.95, 8  # of the time an online job has unfinished work, in so many looks

FIRST = "it is online, so its bursts are not interrupted"
SOME_ONLINE = "it is online, and so is another job"
LEAVES = "it has what online jobs leave"
LEARNING = "it is stopped for a moment, to see what the online job takes alone"
CUT = "it has what online jobs leave, and less of the time so that these are not slowed down"
BESIDE_ONLINE = "it gives way at once to an online job"


@dataclass(frozen=True)
class Classed:
    """A job on one device. job_class: online, offline or none. work: what its processes have
    told of since the last look; None: they have not."""

    seen: Seen
    job_class: str
    work: Work | None = None


@dataclass
class Controller:
    """Of one device. slices: what is chosen without classes. by: feedback, pid or slices."""

    allowed: float
    by: str = "feedback"
    slices: Slices = field(default_factory=Slices)
    feedback: Feedback | None = None
    pid: Pid = field(default_factory=Pid)
    at_work: int = 0  # looks in which an online job had unfinished work nearly all of the time

    @property
    def chosen(self) -> dict[int, Choice]:
        return self.slices.chosen

    @property
    def slowdown(self) -> float | None:
        """By how much the work of an online job takes longer than alone; None: not known."""
        return self.feedback.slowdown if self.feedback else None

    @property
    def excess(self) -> float | None:
        """By how much it surely does, in units of what is allowed."""
        return self.feedback.excess if self.feedback else None

    def look(
        self, now: int, jobs: Mapping[int, Classed], busy: float = 0.0, clock: float = 1.0
    ) -> dict[int, Choice]:
        """What each job that holds a lease has from now on. now: ns. busy: the part of the time in
        which the device worked. clock: as a part of the highest one."""
        chosen = self.slices.look(now, _seen(jobs))
        there = {job: jobs[job] for job in chosen if self._obeys(job, jobs[job])}
        online = [job for job, one in there.items() if one.job_class == ONLINE]
        others = [job for job in there if job not in online]
        if not online:
            self.feedback, self.pid = None, Pid()
            return chosen
        self.feedback = self.feedback or Feedback(self.allowed)
        if len(chosen) == len(online):
            self.feedback.rest(now, {job: there[job].work for job in online})
        if len(chosen) < 2:
            return chosen
        self._note_work(there[job].seen.wanted for job in online)
        duty = self._duty(now, there, online, busy, clock)
        us = LONG_US if len(online) == 1 else AS_MADE
        mine = Choice(us, ALWAYS, FIRST if us else SOME_ONLINE)
        n = sum(there[job].seen.processes for job in others)
        made = dict.fromkeys(online, mine)
        for job in others:
            classless = there[job].job_class != OFFLINE
            longer = n > 1 or (classless and self.at_work >= LOOKS)
            made[job] = _beside(SEVERAL_US if longer else SHORT_US, duty, there[job])
        self.slices.chosen = chosen | made
        return self.slices.chosen

    def disobeys(self, job: int) -> bool:
        """Whether the job does not do what was chosen for it."""
        return job in self.slices.obedience.caught

    def _note_work(self, wanted: Iterable[float | None]) -> None:
        """wanted: of the online jobs, as Seen has it. None of a look says nothing."""
        known = [part for part in wanted if part is not None]
        if known:
            self.at_work = self.at_work + 1 if max(known) >= NEVER_IDLES else 0

    def _obeys(self, job: int, one: Classed) -> bool:
        return one.seen.controlled and not self.disobeys(job)

    def _duty(
        self, now: int, there: Mapping[int, Classed], online: list[int], busy: float, clock: float
    ) -> int:
        """Of the offline jobs."""
        if self.feedback is None or all(one.job_class != OFFLINE for one in there.values()):
            return ALWAYS
        if self.by == "pid":
            return self.pid.look(busy, clock)
        if self.by == "slices":
            return ALWAYS
        return self.feedback.look(now, {job: there[job].work for job in online})


def _seen(jobs: Mapping[int, Classed]) -> dict[int, Seen]:
    """What leased/slices sees. Beside an online job it is not known what part jobs have: one whose
    duty is cut has unfinished work all the time, so it would seem to keep more than its duty."""
    online = any(one.seen.holds and one.job_class == ONLINE for one in jobs.values())
    return {job: replace(one.seen, part=None) if online else one.seen for job, one in jobs.items()}


def _beside(us: int, duty: int, one: Classed) -> Choice:
    """Of a job beside an online one."""
    if one.job_class != OFFLINE:
        return Choice(us, ALWAYS, BESIDE_ONLINE)
    if duty == ALWAYS:
        return Choice(us, duty, LEAVES)
    return Choice(us, duty, CUT if duty else LEARNING, copies=True)
