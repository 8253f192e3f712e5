"""Pairs of online and offline jobs whose worth together is the most: maximum-weight matching in a
graph of two sides, by scipy's linear_sum_assignment. scipy is optional."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence

from leased.matching.model import Model
from leased.matching.profile import Profile

SLOWDOWN = 1.05  # of an online job, the most that it is to have


def is_possible() -> bool:
    """Whether scipy is there; without it nothing is matched, and best fit decides."""
    return importlib.util.find_spec("scipy") is not None


def worth(model: Model, online: Profile, offline: Profile, room: int = 0) -> float:
    """Of the pair: the predicted speed of the offline job, of its own alone, when it is cut so that
    the online one is not too slow. 0: their memory does not fit. room: bytes of the device; 0: not
    known."""
    if room and online.memory + offline.memory > room:
        return 0.0
    speeds = model.predict(online, offline)
    return speeds.offline * duty(speeds.slowdown)


def duty(slowdown: float) -> float:
    """The part of the time in which the offline job may run, so that an online job that would be
    slowed so much is slowed by no more than SLOWDOWN: taken to be in proportion."""
    return min(1.0, (SLOWDOWN - 1) / max(SLOWDOWN - 1, slowdown - 1))


def match(worths: Sequence[Sequence[float]]) -> Mapping[int, int]:
    """worths: a row for each offline job, a column for each place beside an online one; 0: not
    there. The place of each row that gets one; of none where matching is not possible."""
    if not (is_possible() and len(worths) and len(worths[0])):
        return {}
    from scipy.optimize import linear_sum_assignment  # large, and seldom needed

    rows, columns = linear_sum_assignment(worths, maximize=True)
    pairs = zip(map(int, rows), map(int, columns))
    return {row: column for row, column in pairs if worths[row][column] > 0}
