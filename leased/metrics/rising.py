"""Counters that never fall: Prometheus takes a lower value for a new beginning at 0."""

from __future__ import annotations

from collections.abc import Hashable


class Rising:
    """The highest value of each counter.

    A daemon that was killed goes on up to a second behind what it had said, and bytes that were
    counted as moved are taken back when they turn out to be clean: such a counter stands still
    until it has caught up.
    """

    def __init__(self) -> None:
        self._highest: dict[Hashable, dict[Hashable, float]] = {}
        self._shown: set[Hashable] = set()

    def of(self, whose: Hashable, name: Hashable, value: float) -> float:
        """The value to show."""
        self._shown.add(whose)
        known = self._highest.setdefault(whose, {})
        known[name] = max(value, known.get(name, value))
        return known[name]

    def forget_others(self) -> None:
        """Forget the counters of which none was shown since this was last called."""
        for gone in self._highest.keys() - self._shown:
            del self._highest[gone]
        self._shown = set()
