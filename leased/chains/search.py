"""How the components of a chain divide the SMs of their GPU, found by trials.

A *division* is what part of the SMs each component has at most, per cent, in the order of the
components. In the plain one each may have all of them. A trial says the throughput of the chain's
last component under a division:

1. the plain division;
2. each component has 200%/N;
3. each in turn is squeezed to half of that: the one whose squeeze costs most is the bottleneck;
4. the bottleneck has 100%;
5. for each of the others, the least part that costs next to nothing is found by halving 5 to 100%,
   or a larger one where that clearly helps;
6. the best of all is compared with the plain one, by turns. It is kept where it wins clearly.

That is O(N log S) trials of the S^N that there are. Steps 1 and 6 are what keeps a chain from being
slower than without this search.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

WHOLE, STEP = 100, 5  # per cent
PARTS = range(STEP, WHOLE + 1, STEP)
MOST_COMPONENTS = 16
LOST = 0.02  # of the throughput: a component may cost so much that it has less
PAIRS = 3  # comparisons with the plain division
GAIN = 0.01  # the least, of the throughput

Division = tuple[int, ...]


class Trial(NamedTuple):
    """throughput: of the last component; the unit does not matter."""

    division: Division
    throughput: float


@dataclass(frozen=True)
class Found:
    """division: to keep. gain: over the plain division, as a part of its throughput. bottleneck:
    its place in the chain."""

    division: Division
    gain: float
    bottleneck: int


Search = Generator[Division, float, Found]


def plain(n: int) -> Division:
    return (WHOLE,) * n


def bound(n: int) -> int:
    """How many trials a search for n components takes at most."""
    return 3 + n + (n - 1) * math.ceil(math.log2(len(PARTS))) + 2 * PAIRS


def search(n: int) -> Search:
    """Yields the division to try next, and is sent the throughput that it has. n: components, 2 to
    MOST_COMPONENTS."""
    trials: list[Trial] = []
    first = yield from _try(plain(n), trials)
    start = (_floor(min(WHOLE, 2 * WHOLE / n)),) * n
    yield from _try(start, trials)
    bottleneck = yield from _bottleneck(start, trials)
    now = yield from _try(_with(start, bottleneck, WHOLE), trials)
    for component in range(n):
        if component != bottleneck:
            now = yield from _least(now, component, trials)
    best = max(trials, key=_throughput)
    gain = yield from _gain(first, best)
    if gain < GAIN:
        return Found(first.division, 0.0, bottleneck)
    return Found(best.division, gain, bottleneck)


def _throughput(trial: Trial) -> float:
    return trial.throughput


def _floor(part: float) -> int:
    return max(STEP, int(part // STEP) * STEP)


def _with(division: Division, component: int, part: int) -> Division:
    return (*division[:component], part, *division[component + 1 :])


def _try(division: Division, trials: list[Trial]) -> Generator[Division, float, Trial]:
    """The trial of a division; if it was tried before, that one."""
    for trial in trials:
        if trial.division == division:
            return trial
    trials.append(Trial(division, (yield division)))
    return trials[-1]


def _bottleneck(start: Division, trials: list[Trial]) -> Generator[Division, float, int]:
    """The component whose squeeze costs most."""
    squeezed = []
    for component, part in enumerate(start):
        trial = yield from _try(_with(start, component, _floor(part / 2)), trials)
        squeezed.append(trial.throughput)
    return squeezed.index(min(squeezed))


def _least(now: Trial, component: int, trials: list[Trial]) -> Generator[Division, float, Trial]:
    """The trial with the least part of a component that costs next to nothing, where the others
    keep what they have now.

    Throughput first grows with the part, while the component holds the chain up, and then perhaps
    falls, since others have less. `good` is a part that costs next to nothing: it becomes larger as
    long as that clearly helps, or else as small as it may be.
    """
    good, most = now, now.throughput
    low, high = 0, len(PARTS) - 1
    while low < high:
        middle, at_good = (low + high) // 2, PARTS.index(good.division[component])
        trial = yield from _try(_with(now.division, component, PARTS[middle]), trials)
        most = max(most, trial.throughput)
        better = good.throughput < (1 - LOST) * trial.throughput
        if middle > at_good and better:
            low, good = middle, trial
        elif middle > at_good:
            high = middle - 1 if low == at_good else at_good
        elif trial.throughput < (1 - LOST) * most:
            low = middle + 1
        else:
            high, good = middle, trial
    return good


def _gain(first: Trial, best: Trial) -> Generator[Division, float, float]:
    """Of the best trial over the plain one, the mean of comparisons by turns: chance helped the
    best one to look so."""
    gains: list[float] = []
    while len(gains) < PAIRS and best.throughput >= (1 + GAIN) * first.throughput:
        before = yield first.division
        gains.append((yield best.division) / before - 1 if before else 0.0)
        if gains[-1] <= 0:
            return 0.0
    return fmean(gains) if gains else 0.0
