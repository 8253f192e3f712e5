"""Which devices gangs connect with each other. Devices are bits of a number."""

from __future__ import annotations

from collections.abc import Iterable

Link = tuple[int, int]  # two devices


class Components:
    """Each gang is a chain of links, and links are counted. So the cost of a question depends on
    the number of devices, not of gangs, and adding or removing a link costs little where other
    links connect the same devices."""

    def __init__(self) -> None:
        self._counts: dict[Link, int] = {}
        self._beside: dict[int, int] = {}  # by device: those that a link connects it with
        self._part: dict[int, int] = {}  # by device that has a link: all it is connected with

    def add(self, links: Iterable[Link]) -> None:
        counts = self._counts
        for link in links:
            count = counts.get(link, 0)
            counts[link] = count + 1
            if not count:
                self._connect(link)

    def remove(self, links: Iterable[Link]) -> None:
        """Remove links that were added before."""
        counts = self._counts
        for link in links:
            count = counts[link] - 1
            if count:
                counts[link] = count
            else:
                del counts[link]
                self._disconnect(link)

    def reached(self, mask: int) -> int:
        """These devices and all that links connect them with."""
        if not self._part:
            return mask
        found = left = mask
        while left:
            device = left & -left
            part = self._part.get(device, device)
            found |= part
            left &= ~part
        return found

    def _connect(self, link: Link) -> None:
        """A new link connects two devices that were not connected directly."""
        one, other = link
        self._beside[one] = self._beside.get(one, 0) | other
        self._beside[other] = self._beside.get(other, 0) | one
        part = self._part.get(one, one)
        if not part & other:
            self._set_part(part | self._part.get(other, other))

    def _disconnect(self, link: Link) -> None:
        """No link connects these two devices directly any more."""
        one, other = link
        self._beside[one] ^= other
        self._beside[other] ^= one
        part = self._spread(one, other)
        if not part & other:
            whole = self._part[one]
            self._set_part(part)
            self._set_part(whole & ~part)

    def _set_part(self, part: int) -> None:
        """These devices are connected with each other, and with no others."""
        left = part
        while left:
            device = left & -left
            left ^= device
            if device != part:
                self._part[device] = part
            else:
                self._part.pop(device, None)
                self._beside.pop(device, None)

    def _spread(self, start: int, other: int) -> int:
        """The devices that links connect with `start`, as far as they are known when `other` is
        found."""
        mask = new = start
        while new and not mask & other:
            device = new & -new
            more = self._beside.get(device, 0) & ~mask
            mask |= more
            new = new & ~device | more
        return mask
