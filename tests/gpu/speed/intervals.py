"""The ratio of two programs' times, and how sure it is.

Noise of the host only adds to a time, so a process is as fast as a low quantile of its segments
says. Times also differ between processes (where their memory and code happen to lie) and while
the machine drifts. So the interval is a bootstrap over processes, drawn anew for each program,
and over rounds, drawn for both together. How fast the machine was meanwhile, as the low quantile
of all processes in a few neighbouring rounds says, is taken out first.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

DRAWS = 2000
OUTSIDE = 0.025  # of the draws on either side of a 95% interval
QUANTILE = 0.1
NEAR = 3  # rounds before and after

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


def low_quantile(times: Sequence[float]) -> float:
    """The time that a tenth of them, and at least one, do not exceed."""
    return sorted(times)[int(QUANTILE * (len(times) - 1))]


def _undisturbed(times: Times, rounds: Sequence[int]) -> float:
    return statistics.mean(low_quantile([process[n] for n in rounds]) for process in times)


def _speed_around(times: Times, n: int) -> float:
    near = min(NEAR, n, len(times[0]) - 1 - n)
    return low_quantile([t for p in times for t in p[n - near : n + near + 1]])


def _without_drift(times: Times, speed: Sequence[float]) -> Times:
    return [[time / speed[n] for n, time in enumerate(process)] for process in times]


def ratio_of(own: Times, other: Times, seed: int = 1) -> Ratio:
    """The ratio of the undisturbed times. ValueError: there is nothing to compare."""
    lengths = {len(process) for process in (*own, *other)}
    if not own or not other or len(lengths) != 1 or 0 in lengths:
        raise ValueError("every process needs as many segments, and each program a process")
    n_rounds = lengths.pop()
    speed = [_speed_around([*own, *other], n) for n in range(n_rounds)]
    own, other = _without_drift(own, speed), _without_drift(other, speed)
    draw = random.Random(seed)
    drawn = []
    for _ in range(DRAWS):
        rounds = draw.choices(range(n_rounds), k=n_rounds)
        mine, others = draw.choices(own, k=len(own)), draw.choices(other, k=len(other))
        drawn.append(_undisturbed(mine, rounds) / _undisturbed(others, rounds))
    drawn.sort()
    outside = int(DRAWS * OUTSIDE)
    found = _undisturbed(own, range(n_rounds)) / _undisturbed(other, range(n_rounds))
    return Ratio(found, drawn[outside], drawn[-1 - outside])
