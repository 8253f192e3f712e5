"""Which devices are taken. Devices are bits of a number."""

from __future__ import annotations

from collections.abc import Iterable


class Taken:
    """The devices that are taken, each by one or several. mask: all of them."""

    def __init__(self) -> None:
        self.mask = 0
        self._counts: dict[int, int] = {}

    def add(self, bits: Iterable[int]) -> None:
        for bit in bits:
            self._counts[bit] = self._counts.get(bit, 0) + 1
            self.mask |= bit

    def remove(self, bits: Iterable[int]) -> None:
        for bit in bits:
            self._counts[bit] -= 1
            if not self._counts[bit]:
                del self._counts[bit]
                self.mask ^= bit
