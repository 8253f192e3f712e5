"""Which devices gangs connect with each other. Devices are bits of a number."""

from __future__ import annotations

from collections.abc import Iterable

MOST_ANSWERS = 64  # that are remembered

Link = tuple[int, int]  # two devices


class Components:
    """Each gang is a chain of links, and links are counted. So what a question costs depends on
    how many devices there are, not on how many gangs."""

    def __init__(self) -> None:
        self._counts: dict[Link, int] = {}
        self._beside: dict[int, int] = {}  # by device: those that a link connects it with
        self._found: dict[int, int] = {}  # answers, until a link comes or goes

    def add(self, links: Iterable[Link]) -> None:
        for link in links:
            count = self._counts.get(link, 0)
            self._counts[link] = count + 1
            if not count:
                self._flip(link)

    def remove(self, links: Iterable[Link]) -> None:
        """They have been added before."""
        for link in links:
            count = self._counts[link] - 1
            if count:
                self._counts[link] = count
            else:
                del self._counts[link]
                self._flip(link)

    def _flip(self, link: Link) -> None:
        """The two are connected by it now and were not, or the other way round."""
        self._found.clear()
        one, other = link
        for device, with_it in ((one, other), (other, one)):
            beside = self._beside.get(device, 0) ^ with_it
            if beside:
                self._beside[device] = beside
            else:
                del self._beside[device]

    def reached(self, mask: int) -> int:
        """These devices and all that links connect them with."""
        if not self._beside:
            return mask
        found = self._found.get(mask)
        if found is None:
            found = self._spread(mask)
            if len(self._found) >= MOST_ANSWERS:
                self._found.clear()
            self._found[mask] = found
        return found

    def _spread(self, mask: int) -> int:
        new = mask
        while new:
            device = new & -new
            more = self._beside.get(device, 0) & ~mask
            mask |= more
            new = new & ~device | more
        return mask
