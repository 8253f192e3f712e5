"""What an online job's calls take alone, by kind of call.

A launch of a graph has as much work as many single calls. A program that makes both, now more of
the one and now more of the other, takes more or less for a call without being slowed down; so each
kind has its own cost. The costs are those by which what all looks took is explained best, where
looks differ by chance the more the more work they had: the likeliest ones by Poisson's law. So what
all calls together should have taken is what they took.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

ENOUGH = 3  # looks
KEPT = 32  # looks, the latest ones
STEPS = 6  # of the search, of which each comes nearer
LEAST_NS = 1.0  # for a call: what takes less cannot be compared
APART = 1e-6  # kinds that always come in the same proportion cannot be told apart

Kinds = tuple[float, float]  # how many single calls, and how many launches of graphs


class Scatter(NamedTuple):
    """How looks differ from what is expected of them: for each ns that they take, squared; how many
    ns that is, on average. products: of their calls, as of _products()."""

    each: float
    takes: float
    products: tuple[float, float, float]


@dataclass
class Costs:
    """looks: the calls of each, and how many ns it took; calls, ns: of all of them. each: what a
    call of each kind takes. scatter: of the looks; None: nobody has asked since the last one."""

    looks: deque[tuple[Kinds, float]] = field(default_factory=lambda: deque(maxlen=KEPT))
    calls: Kinds = (0.0, 0.0)
    ns: float = 0.0
    each: Kinds = (0.0, 0.0)
    scatter: Scatter | None = None

    def add(self, *looks: tuple[Kinds, float]) -> None:
        self.looks.extend(looks)
        self._fit()
        self.scatter = None

    @property
    def known(self) -> bool:
        return len(self.looks) >= ENOUGH

    def expected(self, calls: Kinds) -> float | None:
        """How many ns such calls take; None: it is not known, or next to nothing."""
        if not self.known or any(n and not seen for n, seen in zip(calls, self.calls)):
            return None
        ns = _takes(calls, self.each)
        return ns if ns > 0 and ns >= LEAST_NS * sum(calls) else None

    def error(self, calls: Kinds, least: float) -> float:
        """The standard error of what such calls take, as a part of it. least: by which part looks
        differ from what is expected of them at least. Only while that is known."""
        self.scatter = self.scatter or self._scatter()
        spread = max(self.scatter.each, least**2 * self.scatter.takes)
        return math.sqrt(spread * _by_inverse(*self.scatter.products, calls)) / _takes(
            calls, self.each
        )

    def _scatter(self) -> Scatter:
        expected = [_takes(calls, self.each) for calls, _ in self.looks]
        takes = [(ns, seen) for ns, (_, seen) in zip(expected, self.looks) if ns > 0]
        free = max(1, len(takes) - all(self.calls))
        each = sum((seen - ns) ** 2 / ns for ns, seen in takes) / free
        return Scatter(each, sum(ns for ns, _ in takes) / len(takes), self._products(expected))

    def _fit(self) -> None:
        """From what each look took, which says how far it may be off, to the likeliest costs. Of
        kinds that cannot be told apart one may seem to cost less than nothing: it costs nothing."""
        calls = sum(one for (one, _), _ in self.looks), sum(two for (_, two), _ in self.looks)
        self.calls, self.ns = calls, sum(ns for _, ns in self.looks)
        self.each = self.ns / calls[0] if calls[0] else 0.0, self.ns / calls[1] if calls[1] else 0.0
        takes, found = [ns for _, ns in self.looks], self.each
        for _ in range(STEPS if all(calls) and self.ns else 0):
            found = self._solve(takes)
            if min(found) < 0:
                rest = [0.0 if cost < 0 else self.ns / n for cost, n in zip(found, calls)]
                found = rest[0], rest[1]
                break
            takes = [_takes(of, found) for of, _ in self.looks]
            if max(takes) <= 0:
                break
        self.each = found

    def _products(self, takes: Sequence[float]) -> tuple[float, float, float]:
        """Of calls of either kind with each other. takes: by look, by how many ns it may be off,
        squared, in proportion."""
        looks = [(calls, ns) for (calls, _), ns in zip(self.looks, takes) if ns > 0]
        pairs = ((0, 0), (0, 1), (1, 1))
        one, mixed, two = (sum(calls[i] * calls[j] / ns for calls, ns in looks) for i, j in pairs)
        return one * (1 + APART), mixed, two * (1 + APART)

    def _solve(self, takes: Sequence[float]) -> Kinds:
        """What calls of either kind cost, by least squares."""
        one, mixed, two = self._products(takes)
        looks = [(calls, seen / ns) for (calls, seen), ns in zip(self.looks, takes) if ns > 0]
        first, second = (sum(calls[kind] * ratio for calls, ratio in looks) for kind in (0, 1))
        apart = one * two - mixed * mixed
        if apart <= 0:
            return 0.0, 0.0
        return (first * two - second * mixed) / apart, (second * one - first * mixed) / apart


def _takes(calls: Kinds, each: Kinds) -> float:
    return calls[0] * each[0] + calls[1] * each[1]


def _by_inverse(one: float, mixed: float, two: float, calls: Kinds) -> float:
    """Calls times the inverse of a matrix, times calls; kinds that were not seen do not count."""
    if not one or not two:
        return calls[0] ** 2 / one if one else calls[1] ** 2 / two
    apart = one * two - mixed * mixed
    return (calls[0] ** 2 * two - 2 * calls[0] * calls[1] * mixed + calls[1] ** 2 * one) / apart
