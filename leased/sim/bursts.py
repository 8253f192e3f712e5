"""Bursts and pauses of jobs that a record has seen.

While others wait for its GPU a job's edges are exact: it asks when it wants to compute, and gives
the GPU up when it is revoked or has been idle for so long. While nobody waits, what NVML said of
the GPU (twice a second) says when it computed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from leased.sim.history import History, Hold, Run, Work
from leased.sim.idleness import Pauses
from leased.sim.jobs import MS

ALWAYS, NEVER = 0.9, 0.02  # parts of a look that count as all and as nothing of it
SHORT = 0.1  # less of a look is not judged by it
AT_ONCE = 20 * MS  # who asks again so soon after a revoke has not paused

Interval = tuple[int, int]


def of_all(history: History) -> list[tuple[tuple[int, int], ...]]:
    """The bursts of each run in the history: ns of work, and ns of the pause after it."""
    bodies = [_bodies(run) for run in history.runs]
    held = {
        uuid: sorted(
            body for run, own in zip(history.runs, bodies) if uuid in run.gang
            for body in own
        )
        for uuid in history.devices
    }  # fmt: skip
    looks = {uuid: Looks(history.work.get(uuid, ()), intervals) for uuid, intervals in held.items()}
    return [_bursts(run, own, looks[run.gang[0]]) for run, own in zip(history.runs, bodies)]


def _bodies(run: Run) -> list[Interval]:
    """For each lease, the time in which the job could compute, without the idle time at its end."""
    pauses, found = Pauses(), []
    for number, hold in enumerate(run.holds):
        idle = _idle_ns(run, hold, pauses)
        end = max(hold.begun, hold.until - idle)
        if idle and number + 1 < len(run.holds) and hold.idle_ns:
            pauses.note(run.asked(run.holds[number + 1]) - end, hold.idle_ns)
        found.append((hold.begun, end))
    return found


def _idle_ns(run: Run, hold: Hold, pauses: Pauses) -> int:
    """How long the job had been idle when it yielded; 0: it did not yield."""
    yielded = hold.revoked is None and hold.idle_ns is not None and hold.until < run.closed
    return pauses.enough_ns(hold.idle_ns) if yielded and hold.idle_ns is not None else 0


class Looks:
    """What NVML said of a device, look by look. held: when jobs could compute there, sorted."""

    def __init__(self, work: Sequence[Work], held: Sequence[Interval]):
        self.work = work
        self.ends = [look.until for look in work]
        self.held = held

    def of(self, begin: int, end: int) -> Iterator[tuple[int, float | None, int]]:
        """Pieces of that time: ns, the part in which the GPU was busy (None: nothing was said),
        and how many jobs could compute."""
        at = begin
        for look in self.work[bisect_right(self.ends, begin) :]:
            if look.since >= end:
                break
            if look.since > at:
                yield look.since - at, None, self.beside(at, look.since)
                at = look.since
            until = min(end, look.until)
            if until > at:
                yield until - at, self._busy(look), self.beside(at, until)
                at = until
        if end > at:
            yield end - at, None, self.beside(at, end)

    def _busy(self, look: Work) -> float | None:
        """Of the time of a look in which anybody could compute, the part in which one did; None:
        that was too short to tell."""
        covered, until = 0, look.since
        for begin, end in self._overlapping(look.since, look.until):
            covered += max(0, min(end, look.until) - max(begin, until))
            until = max(until, min(end, look.until))
        whole = look.until - look.since
        if covered < SHORT * whole:
            return None
        part = min(1.0, whole * look.busy_percent / 100 / covered)
        return 1.0 if part >= ALWAYS else 0.0 if part <= NEVER else part

    def beside(self, begin: int, end: int) -> int:
        """How many jobs could compute in the middle of that time; at least 1."""
        middle = (begin + end) // 2
        return max(1, len(list(self._overlapping(middle, middle + 1))))

    def _overlapping(self, begin: int, end: int) -> Iterator[Interval]:
        return (body for body in self.held if body[0] < end and body[1] > begin)


@dataclass
class Strip:
    """Bursts as they are put together. pairs: ns of work and of a pause. worked: ns in all."""

    pairs: list[list[int]] = field(default_factory=lambda: [[0, 0]])
    worked: int = 0

    def work(self, ns: int) -> None:
        self.worked += ns
        if ns > 0 and self.pairs[-1][1]:
            self.pairs.append([ns, 0])
        elif ns > 0:
            self.pairs[-1][0] += ns

    def pause(self, ns: int) -> None:
        if ns > 0:
            self.pairs[-1][1] += ns

    def mixed(self, ns: int, part: float, beside: int, works: bool) -> bool:
        """Both, in the order in which one of them goes on with what was before. works: it worked
        before. Returns whether it did at the end."""
        busy = round(ns * part)
        work, pause = rounded(busy / beside), rounded(ns - busy)
        if works:
            self.work(work)
            self.pause(pause)
            return not pause
        self.pause(pause)
        self.work(work)
        return bool(work)


def _bursts(run: Run, bodies: Sequence[Interval], looks: Looks) -> tuple[tuple[int, int], ...]:
    strip, at = Strip(), run.opened
    for hold, (begin, end) in zip(run.holds, bodies):
        asked = run.asked(hold)
        if asked - at > AT_ONCE:
            strip.pause(rounded(asked - at))
        works, before = True, strip.worked  # as it has asked
        free = end if hold.idle_ns is None else min(end, max(begin, hold.contended))
        for ns, part, beside in looks.of(begin, free):
            unseen = 1.0 if works else 0.0
            works = strip.mixed(ns, unseen if part is None else part, beside, works)
        strip.work(rounded((end - free) / looks.beside(free, end)))
        if strip.worked == before:
            strip.work(MS)  # too little to be seen
        strip.pause(rounded(hold.until - end))
        at = hold.until
    if not (run.waits and run.waits[-1].until == run.closed):
        strip.pause(rounded(run.closed - at))
    return tuple((work, pause) for work, pause in strip.pairs if work or pause)


def rounded(ns: float) -> int:
    """The time rounded to whole ms."""
    return max(0, round(ns / MS)) * MS
