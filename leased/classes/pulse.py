"""How long the work of one online job takes for each of its calls: alone, and beside offline jobs.

A process knows how many calls it has submitted, and for how long it had unfinished work. The second
grows where others slow it down, and the first does not, whether it works in bursts or always. Calls
differ, so the means are known only as well as looks agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple


class Work(NamedTuple):
    """So many calls, and for how many ns there was unfinished work."""

    calls: int = 0
    ns: int = 0


KEPT_ALONE, KEPT_BESIDE = 0.95, 0.97  # of what is known, when more is learnt
LEAST = 0.02  # of a mean, by which looks are taken to differ at least
ENOUGH = 3  # looks
SURE = 1.5  # standard errors


@dataclass
class Mean:
    """Of the last looks. kept: how much of what is known stays when another one comes. looks: how
    many count. means, squares: of the times for a call, added up."""

    kept: float
    looks: float = 0.0
    means: float = 0.0
    squares: float = 0.0

    def add(self, work: Work) -> None:
        if work.calls > 0:
            mean = work.ns / work.calls
            self.looks = self.looks * self.kept + 1
            self.means = self.means * self.kept + mean
            self.squares = self.squares * self.kept + mean * mean

    @property
    def known(self) -> bool:
        return self.looks >= ENOUGH * self.kept**ENOUGH and self.means > 0

    @property
    def ns(self) -> float:
        """For a call."""
        return self.means / self.looks

    @property
    def spread(self) -> float:
        """By how much looks differ, as a part of the mean."""
        return math.sqrt(max(0.0, self.squares / self.looks - self.ns**2)) / self.ns


@dataclass
class Pulse:
    """Of one job."""

    alone: Mean = field(default_factory=lambda: Mean(KEPT_ALONE))
    beside: Mean = field(default_factory=lambda: Mean(KEPT_BESIDE))

    @property
    def slowdown(self) -> float | None:
        """By how much its work takes longer than alone; None: it is not known."""
        if not (self.alone.known and self.beside.known):
            return None
        return self.beside.ns / self.alone.ns - 1

    @property
    def doubt(self) -> float:
        """The slowdown may be that much less, or more."""
        spread = max(LEAST, self.alone.spread, self.beside.spread)
        return SURE * spread * math.sqrt(1 / self.alone.looks + 1 / self.beside.looks)
