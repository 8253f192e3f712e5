"""When the division of a chain's GPU is searched for, and what a trial is. It reads no clock and
does no input.

The throughput of the chain is how often its last component submits work. That is seen in windows of
time, which become longer until one says the same as the next. So the search begins when the chain
runs steadily, and begins again when its throughput has shifted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import fmean

from leased.chains.search import (
    MOST_COMPONENTS,
    Division,
    Found,
    Search,
    Trial,
    bound,
    plain,
    search,
)

S = 1_000_000_000
SETTLES_S = 1.0  # after a change of the division; what is in flight then counts for neither
FIRST_S, MOST_NS = 1.0, 32 * S  # a window
ENOUGH = 100  # calls in a window
WINDOWS, STEADY = 4, 0.02  # one after the other that say the same, and by how much they may differ
SHIFT = 0.1  # so much windows differ from what is known when the throughput has shifted
# Before the next search where one changed nothing: the first pause, which doubles, and the longest.
PAUSE_NS, LONGEST_NS = 60 * S, 3600 * S

FEW = "a chain has two components or more"
MANY = f"of more than {MOST_COMPONENTS} components the GPU is not divided"
WAITS = "it does not run steadily yet"
IDLE = "its last component submits too little work to compare anything"
UNSTEADY = "its throughput differs too much by itself to compare anything"
TRIES = "divisions of the GPU are tried"
PLAIN = "no division of the GPU is clearly faster"
KEEPS = "the fastest division of the GPU that was found"


@dataclass
class Window:
    """Calls of the last component in a time, which begins and ends where it submits some: it may
    submit many at once and then none for a while. calls: at its beginning; None: it has not begun.
    seen: at the last look. began, length: ns."""

    length: int = field(default_factory=lambda: round(FIRST_S * S))
    calls: int | None = None
    seen: int | None = None
    began: int = 0

    def begin(self, at: int) -> None:
        """It begins no sooner than that."""
        self.calls, self.seen, self.began = None, None, at

    def look(self, at: int, calls: int) -> float | None:
        """Calls a second, at its end. at: when there had been so many calls (ns)."""
        if at < self.began:
            return None
        if self.calls is not None and calls < self.calls:
            self.begin(at)
        grows, self.seen = self.seen is not None and calls > self.seen, calls
        passed = at - self.began
        done = calls - self.calls if self.calls is not None else 0
        over = passed >= self.length and done >= ENOUGH and grows
        if over or passed >= MOST_NS or (self.calls is None and grows):
            self.calls, self.began = calls, at
        if over or passed >= MOST_NS:
            return done * S / passed
        return None


@dataclass
class Optimiser:
    """Of one chain on one device. components: their process numbers, in their order. division: what
    they have now. why: a phrase for people. trials: of the last search. normal: the throughput
    since then; 0: not known yet. throughput: of the last window; None: none has ended. ended: when
    the last search did (ns); pause: until the next one, at least; rests: the least pause."""

    components: tuple[int, ...]
    division: Division = ()
    why: str = WAITS
    trials: list[Trial] = field(default_factory=list)
    found: Found | None = None
    normal: float = 0.0
    throughput: float | None = None
    window: Window = field(default_factory=Window)
    recent: list[float] = field(default_factory=list)
    pause: int = 0
    ended: int = 0
    rests: int = 0
    search: Search | None = None

    def __post_init__(self) -> None:
        n = len(self.components)
        self.division = plain(n)
        self.why = FEW if n < 2 else MANY if n > MOST_COMPONENTS else WAITS

    @property
    def bound(self) -> int:
        """How many trials a search takes at most."""
        return bound(len(self.components))

    def look(self, now: int, calls: int, at: int) -> Division:
        """What each component has from now on. calls: how many the last one had submitted by the
        time `at`. now, at: ns."""
        if self.why in (FEW, MANY):
            return self.division
        throughput = self.window.look(at, calls)
        if throughput is None:
            return self.division
        self.throughput = throughput
        if self.search is not None and throughput:
            self._try_next(now, self.search, throughput)
        elif self.search is not None:
            self._break_off(now)
        elif throughput * MOST_NS < ENOUGH * S:
            self.recent.clear()
            self.why = self.why if self.found else IDLE
        elif self.found is None:
            self._wait(now, throughput)
        else:
            self._watch(now, throughput)
        return self.division

    def hold(self, now: int) -> None:
        """A component is being started again: what there is meanwhile does not count."""
        self.window.begin(now + round(SETTLES_S * S))

    def _wait(self, now: int, throughput: float) -> None:
        """The chain may run steadily."""
        self.recent.append(throughput)
        if len(self.recent) < WINDOWS:
            return
        if max(self.recent) <= (1 + STEADY) * min(self.recent):
            self._begin(now)
            return
        self.why = WAITS if self.window.length < MOST_NS else UNSTEADY
        self.window.length = min(2 * self.window.length, MOST_NS)
        self.recent.clear()

    def _watch(self, now: int, throughput: float) -> None:
        """The throughput may have shifted since the last search."""
        self.recent.append(throughput)
        if not self.normal and len(self.recent) == WINDOWS:
            self.normal = fmean(self.recent)
        del self.recent[:-WINDOWS]
        least = min(abs(one - self.normal) for one in self.recent)
        shifted = len(self.recent) == WINDOWS and least > SHIFT * self.normal
        if self.normal and shifted and now - self.ended >= self.pause:
            self._begin(now)

    def _begin(self, now: int) -> None:
        self.search, self.trials, self.why = search(len(self.components)), [], TRIES
        self._set(now, next(self.search))

    def _try_next(self, now: int, trying: Search, throughput: float) -> None:
        self.trials.append(Trial(self.division, throughput))
        try:
            self._set(now, trying.send(throughput))
        except StopIteration as ended:
            self._keep(now, ended.value)

    def _break_off(self, now: int) -> None:
        """The chain stands still, so trials say nothing."""
        self.search, self.found, self.why = None, None, IDLE
        self.trials.clear()
        self.recent.clear()
        self._set(now, plain(len(self.components)))

    def _keep(self, now: int, found: Found) -> None:
        in_vain = self.found is not None and self.found.division == found.division
        pause = min(max(PAUSE_NS, 2 * self.pause), LONGEST_NS) if in_vain else 0
        self.pause = max(pause, self.rests)
        self.search, self.found, self.normal, self.ended = None, found, 0.0, now
        self.recent.clear()
        self.why = PLAIN if found.division == plain(len(self.components)) else KEEPS
        self._set(now, found.division)

    def _set(self, now: int, division: Division) -> None:
        if division != self.division:
            self.division = division
            self.window.begin(now + round(SETTLES_S * S))
