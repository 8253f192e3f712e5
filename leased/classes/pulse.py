"""How long the work of one online job takes for each of its calls: alone, and beside offline jobs.

A process knows how many calls it has submitted, and for how long it had unfinished work. The second
grows where others slow it down, and the first does not, whether it works in bursts or always. Calls
differ, so the means are known only as well as looks agree. One look that is far off (a few calls
with much work) counts as one at the edge of what is to be expected.

A switch of the GPU from one job to another is waited for by each burst that begins while another
job runs. What it costs is known, and no cut of the others' time is worth it.

By how much it takes longer is taken to grow with the duty of the offline jobs, so that what was
seen at one duty still counts at another. What then does not fit is forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class Work(NamedTuple):
    """So many calls, for how many ns there was unfinished work, and in how many bursts."""

    calls: int = 0
    ns: int = 0
    bursts: int = 0

    def plus(self, more: Work) -> Work:
        """more: what was told later. What a process counts never falls, whatever it tells."""
        bursts = self.bursts + max(0, more.bursts)
        return Work(self.calls + max(0, more.calls), self.ns + more.ns, bursts)


# Of what is known, when more is learnt. A change is seen in what is kept for a short time.
KEPT_ALONE, KEPT_BESIDE, KEPT_SHORT = 0.97, 0.985, 0.8
LEAST = 0.02  # of the time alone, by which looks are taken to differ at least
LEAST_NS = 1.0  # for a call: what takes less cannot be compared
ENOUGH = 3  # looks
CHANGED = 4.0  # standard errors
FAR, MANY = 3.0, 10  # spreads; looks, from which on it is known what is far off
# At most, of a burst: an H200 takes 0.18 to 0.23 ms, however long slices are, and it is not known
# better by how much bursts take longer.
SWITCH_NS = 300_000


@dataclass
class Line:
    """Values that grow in proportion to something: the steepness, by least squares on the last
    looks. kept: how much of what is known stays when another look comes. looks: how many count. The
    others are sums of products; weights: of squared weights."""

    kept: float
    looks: float = 0.0
    weights: float = 0.0
    at: float = 0.0
    both: float = 0.0
    values: float = 0.0

    def add(self, value: float, at: float = 1.0) -> None:
        self.looks = self.looks * self.kept + 1
        self.weights = self.weights * self.kept**2 + at * at
        self.at = self.at * self.kept + at * at
        self.both = self.both * self.kept + at * value
        self.values = self.values * self.kept + value * value

    def near(self, value: float, at: float, least: float) -> float:
        """The value, or where it is far off the edge of what is to be expected. least: by which
        values differ at least."""
        if not self.has(MANY):
            return value
        edge, expected = FAR * max(least, self.spread), self.steep * at
        return max(expected - edge, min(expected + edge, value))

    @property
    def known(self) -> bool:
        return self.has(ENOUGH)

    def has(self, looks: int) -> bool:
        """Whether there have been so many, of which the first ones count less by now."""
        return self.looks >= looks * self.kept**looks

    @property
    def steep(self) -> float:
        return self.both / self.at

    @property
    def spread(self) -> float:
        """By how much values differ from it."""
        return math.sqrt(max(0.0, (self.values - self.steep * self.both) / self.looks))

    def error(self, least: float) -> float:
        """The standard error of that. least: by which values differ from it at least."""
        return max(least, self.spread) * math.sqrt(self.weights) / self.at


@dataclass
class Pulse:
    """Of one job. times: ns for a call, alone. beside, lately: by which part a call takes longer,
    against the part of the time in which offline jobs may run. bursts: for a call. uncut_ns: for a
    call, before the first cut; 0: not known."""

    times: Line = field(default_factory=lambda: Line(KEPT_ALONE))
    beside: Line = field(default_factory=lambda: Line(KEPT_BESIDE))
    lately: Line = field(default_factory=lambda: Line(KEPT_SHORT))
    bursts: Line = field(default_factory=lambda: Line(KEPT_BESIDE))
    uncut_ns: float = 0.0

    def add(self, work: Work, duty: float) -> None:
        """duty: the part of the time in which offline jobs could run, 0 to 1."""
        if work.calls <= 0:
            return
        ns = work.ns / work.calls
        self.bursts.add(work.bursts / work.calls)
        if not duty:
            self.times.add(ns)
        elif self._comparable:
            slower = ns / self.times.steep - 1
            self.beside.add(self.beside.near(slower, duty, LEAST), duty)
            self.lately.add(slower, duty)
            self._compare()

    @property
    def _comparable(self) -> bool:
        """Whether it is known what it takes alone, and that is more than nothing."""
        return self.times.known and self.times.steep >= LEAST_NS

    def _compare(self) -> None:
        """Forget what does not fit what is seen lately."""
        if not self.lately.known:
            return
        least = max(LEAST, self.beside.spread)
        error = math.hypot(self.lately.error(least), self.beside.error(least))
        if abs(self.lately.steep - self.beside.steep) > CHANGED * error:
            self.beside = replace(self.lately, kept=KEPT_BESIDE)

    def slowdown(self, duty: float) -> float | None:
        """By how much its work takes longer than alone; None: it is not known."""
        return self.beside.steep * duty if self.beside.known and self._comparable else None

    @property
    def switches(self) -> float:
        """The part by which its work takes longer if each of its bursts waits for a switch. Only
        while slowdown() is known."""
        return SWITCH_NS * self.bursts.steep / self.times.steep

    def begin_cut(self) -> None:
        """Remember what a call takes while offline jobs have all their time."""
        slowdown = self.slowdown(1.0)
        self.uncut_ns = 0.0 if slowdown is None else self.times.steep * (1 + slowdown)

    def begin_trial(self) -> None:
        """What is seen lately is that of the trial alone: at a low duty it would weigh little."""
        self.lately = Line(KEPT_SHORT)

    @property
    def uncut(self) -> float:
        """By how much its work took longer before the first cut, by what is known of it alone by
        now. Only while slowdown() is known."""
        return max(0.0, self.uncut_ns / self.times.steep - 1)

    def doubt(self, duty: float) -> float:
        """The standard error of the slowdown."""
        alone = self.times.error(LEAST * self.times.steep) / self.times.steep
        return math.hypot(alone, self.beside.error(LEAST) * duty)
