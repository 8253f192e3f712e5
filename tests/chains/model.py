"""A model of a chain on a GPU whose SMs its components divide.

A component of which k% of the SMs are enough is in proportion slower with less. Where the parts are
more than the SMs together, each component has less, and what they do to each other's caches costs
all of them something.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from leased.chains.search import WHOLE, Division, Found, search
from tests.support.together import zip_strict

Throughput = Callable[[Division], float]


@dataclass(frozen=True)
class Chain:
    """rates: what each component can do alone. enough: from how many per cent of the SMs on. crowd:
    what it costs if all SMs have been given twice."""

    rates: Sequence[float]
    enough: Sequence[float]
    crowd: float = 0.0

    def throughput(self, division: Division) -> float:
        given = sum(division) / WHOLE
        speeds = [
            rate * min(1.0, part / max(1.0, given) / enough)
            for rate, enough, part in zip_strict(self.rates, self.enough, division)
        ]
        return min(speeds) / (1 + self.crowd * max(0.0, given - 1))


def tried(n: int, throughput: Throughput) -> tuple[Found, list[Division]]:
    """What a search finds, and its trials."""
    searching = search(n)
    trials = [next(searching)]
    while True:
        try:
            trials.append(searching.send(throughput(trials[-1])))
        except StopIteration as ended:
            return ended.value, trials
