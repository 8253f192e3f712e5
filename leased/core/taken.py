"""Which devices are taken. Devices are bits of a number."""

from __future__ import annotations


class Taken:
    """The devices that are taken, each by one or several. mask: all of them.

    How many take a device is a number of which each binary digit is kept as a mask for all
    devices, so the cost of a change hardly depends on how many devices it has.
    """

    def __init__(self) -> None:
        self.mask = 0
        self._digits: list[int] = []  # the lowest first; the last one is not 0

    def add(self, mask: int) -> None:
        """These devices are taken once more."""
        self.mask |= mask
        for n, digit in enumerate(self._digits):
            self._digits[n] = digit ^ mask
            mask &= digit
            if not mask:
                return
        self._digits.append(mask)

    def remove(self, mask: int) -> None:
        """These devices are taken once less. They must have been."""
        for n, digit in enumerate(self._digits):
            self._digits[n] = digit ^ mask
            mask &= ~digit
            if not mask:
                break
        while self._digits and not self._digits[-1]:
            self._digits.pop()
        self.mask = 0
        for digit in self._digits:
            self.mask |= digit
