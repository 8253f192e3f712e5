"""The ratio of two programs' times, and how sure it is.

Times differ between processes (where their memory and code happen to lie), between segments
of one process, and while the machine drifts. So the interval is a bootstrap over all of these:
processes are drawn anew for each program, and rounds for both together. The segments of one
round ran within the same seconds, so what a round was slower by than others is taken out first.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

DRAWS = 2000
OUTSIDE = 0.025  # of the draws on either side of a 95% interval

# Of one program: by process, then by round; all as long.
Times = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Ratio:
    """Time of one over time of the other, with its 95% interval."""

    ratio: float
    low: float
    high: float

    def verdict(self, most: float) -> str:
        """Whether it is at most `most`: within, slower, or unclear."""
        if self.low > most:
            return "slower"
        return "within" if self.high <= most else "unclear"


def _median(times: Times, rounds: Sequence[int]) -> float:
    return statistics.median(process[n] for process in times for n in rounds)


def _without_drift(times: Times, by_round: Sequence[float]) -> Times:
    return [[time / by_round[n] for n, time in enumerate(process)] for process in times]


def ratio_of(own: Times, other: Times, seed: int = 1) -> Ratio:
    """The ratio of the medians, without drift. ValueError: there is nothing to compare."""
    lengths = {len(process) for process in (*own, *other)}
    if not own or not other or len(lengths) != 1 or 0 in lengths:
        raise ValueError("every process needs as many segments, and each program a process")
    n_rounds = lengths.pop()
    by_round = [_median((*own, *other), [n]) for n in range(n_rounds)]
    own, other = _without_drift(own, by_round), _without_drift(other, by_round)
    draw = random.Random(seed)
    drawn = []
    for _ in range(DRAWS):
        rounds = draw.choices(range(n_rounds), k=n_rounds)
        mine, others = draw.choices(own, k=len(own)), draw.choices(other, k=len(other))
        drawn.append(_median(mine, rounds) / _median(others, rounds))
    drawn.sort()
    outside = int(DRAWS * OUTSIDE)
    found = _median(own, range(n_rounds)) / _median(other, range(n_rounds))
    return Ratio(found, drawn[outside], drawn[-1 - outside])
