"""How long the work of one online job takes for its calls: alone, and beside offline jobs.

A process knows how many calls it has submitted, and for how long it had unfinished work. The second
grows where others slow it down, and the first does not, whether it works in bursts or always. What
each kind of call takes alone says how long the calls of a look would have taken (costs.py). One
look that is far off (a few calls with much work) counts as one at the edge of what is to be
expected.

A switch of the GPU from one job to another is waited for by each burst that begins while another
job runs. What it costs is known, and no cut of the others' time is worth it.

By how much it takes longer is taken to grow with the duty of the offline jobs, so that what was
seen at one duty still counts at another. What then does not fit is forgotten.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from leased.classes.costs import ENOUGH, Costs, Kinds


class Work(NamedTuple):
    """So many calls, for how many ns there was unfinished work, and in how many bursts. graphs: of
    the calls, launches of graphs."""

    calls: int = 0
    ns: int = 0
    bursts: int = 0
    graphs: int = 0

    def plus(self, more: Work) -> Work:
        """more: what was told later. What a process counts never falls, whatever it tells."""
        bursts, graphs = self.bursts + max(0, more.bursts), self.graphs + max(0, more.graphs)
        calls, ns = self.calls + max(0, more.calls), self.ns + max(0, more.ns)
        return Work(calls, ns, bursts, graphs)

    @property
    def kinds(self) -> Kinds:
        graphs = max(0, min(self.graphs, self.calls))
        return float(self.calls - graphs), float(graphs)


# Of what is known, when more is learnt. A change is seen in what is kept for a short time.
KEPT_BESIDE, KEPT_SHORT = 0.985, 0.8
LEAST = 0.02  # of the time alone, by which looks are taken to differ at least
CHANGED = 4.0  # standard errors
FITS = 3.0  # standard errors
SAME = 0.03  # of what work takes alone: what was compared with that still counts
OTHER = 2.0  # times as badly known as that of which it was learnt
FAR, MANY = 3.0, 10  # spreads; looks, from which on it is known what is far off
# At most, of a burst: an H200 takes 0.18 to 0.23 ms, however long slices are, and it is not known
# better by how much bursts take longer.
SWITCH_NS = 300_000


@dataclass
class Line:
    """Values that grow in proportion to something: the steepness, by least squares on the last
    looks. kept: how much of what is known stays when another look comes. looks: how many count. The
    others are sums of products, each of them as heavy as its look; weights: of squared weights."""

    kept: float
    looks: float = 0.0
    weights: float = 0.0
    at: float = 0.0
    both: float = 0.0
    values: float = 0.0

    def add(self, value: float, at: float = 1.0, weight: float = 1.0) -> None:
        """weight: against other looks, as far as the value is known better where there was more
        work."""
        self.looks = self.looks * self.kept + 1
        self.weights = self.weights * self.kept**2 + weight * at * at
        self.at = self.at * self.kept + weight * at * at
        self.both = self.both * self.kept + weight * at * value
        self.values = self.values * self.kept + weight * value * value

    def near(self, value: float, at: float, least: float, weight: float = 1.0) -> float:
        """The value, or where it is far off the edge of what is to be expected. least: by which
        values differ at least."""
        if not self.has(MANY):
            return value
        edge = FAR * max(least, self.spread) / math.sqrt(weight)
        expected = self.steep * at
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
    """Of one job. alone: what calls take. fresh: the same, while it is learnt anew; None: it is
    not. beside, lately: by which part calls take longer, against the part of the time in which
    offline jobs may run. before: as `beside` was when a cut began. calls: of the looks in
    `beside`. bursts: for each ns alone."""

    alone: Costs = field(default_factory=Costs)
    fresh: Costs | None = None
    beside: Line = field(default_factory=lambda: Line(KEPT_BESIDE))
    lately: Line = field(default_factory=lambda: Line(KEPT_SHORT))
    bursts: Line = field(default_factory=lambda: Line(KEPT_BESIDE))
    before: Line = field(default_factory=lambda: Line(KEPT_BESIDE))
    calls: Kinds = (0.0, 0.0)

    def add(self, work: Work, duty: float) -> None:
        """duty: the part of the time in which offline jobs could run, 0 to 1."""
        if work.calls <= 0:
            return
        if not duty:
            (self.alone if self.fresh is None else self.fresh).add((work.kinds, float(work.ns)))
            return
        alone = self.alone.expected(work.kinds)
        if alone is None:
            return
        one, two = (n * KEPT_BESIDE + more for n, more in zip(self.calls, work.kinds))
        self.calls = one, two
        weight = alone * len(self.alone.looks) / self.alone.ns
        self.bursts.add(work.bursts / alone, weight=weight)
        slower = work.ns / alone - 1
        self.beside.add(self.beside.near(slower, duty, LEAST, weight), duty, weight)
        self.lately.add(slower, duty, weight)
        self._compare()

    def _compare(self) -> None:
        """Forget what does not fit what is seen lately."""
        if not self.lately.known:
            return
        least = max(LEAST, self.beside.spread)
        error = math.hypot(self.lately.error(least), self.beside.error(least))
        if abs(self.lately.steep - self.beside.steep) > CHANGED * error:
            self.beside = replace(self.lately, kept=KEPT_BESIDE)

    def begin_learning(self) -> None:
        """What it takes alone is learnt anew from now on."""
        self.fresh = Costs()

    def end_learning(self) -> None:
        """Believe what was learnt since. Where that is something else than was known before (a
        program does other things while it starts), that is forgotten, and what was seen beside
        others where it was compared with something else than it would be now."""
        fresh, self.fresh = self.fresh, None
        if fresh is None or not fresh.known:
            return
        before = self.alone.expected(self.calls)
        if self.alone.known and self._fits(fresh):
            self.alone.add(*fresh.looks)
        else:
            self.alone = fresh
        now = self.alone.expected(self.calls)
        if before is not None and now is not None and abs(now / before - 1) <= SAME:
            return
        self.calls = 0.0, 0.0
        self.beside, self.before, self.bursts = (Line(KEPT_BESIDE) for _ in range(3))
        self.lately = Line(KEPT_SHORT)

    def _fits(self, fresh: Costs) -> bool:
        """Whether it agrees with what is known."""
        known = self.alone.expected(fresh.calls)
        if known is None or fresh.expected(fresh.calls) is None:
            return False
        errors = (one.error(fresh.calls, LEAST) for one in (self.alone, fresh))
        return abs(fresh.ns / known - 1) <= FITS * math.hypot(*errors)

    def slowdown(self, duty: float) -> float | None:
        """By how much its work takes longer than alone; None: it is not known."""
        if not self.beside.known or self.alone.expected(self.calls) is None:
            return None
        return self.beside.steep * duty

    @property
    def is_other_work(self) -> bool:
        """Whether the kinds of its calls are no more those of which it is known what they take
        alone, so that this is known badly. Only while slowdown() is known."""
        error, usual = (self.alone.error(calls, LEAST) for calls in (self.calls, self.alone.calls))
        return error > max(LEAST, OTHER * usual)

    @property
    def switches(self) -> float:
        """The part by which its work takes longer if each of its bursts waits for a switch. Only
        while slowdown() is known."""
        return SWITCH_NS * self.bursts.steep

    def begin_cut(self) -> None:
        """Remember what it takes while offline jobs have all their time."""
        self.before = replace(self.beside)

    def end_cut(self) -> None:
        """It was in vain: what was seen meanwhile says nothing of what it takes without one."""
        self.beside, self.lately = replace(self.before), Line(KEPT_SHORT)

    @property
    def uncut(self) -> float:
        """By which part it took longer before the first cut."""
        return max(0.0, self.before.steep) if self.before.known else 0.0

    def begin_trial(self) -> None:
        """What is seen lately is that of the trial alone: at a low duty it would weigh little."""
        self.lately = Line(KEPT_SHORT)

    def doubt(self, duty: float) -> float:
        """The standard error of the slowdown. Only while that is known."""
        alone = self.alone.error(self.calls, LEAST)
        return math.hypot(alone, self.beside.error(LEAST) * duty)
