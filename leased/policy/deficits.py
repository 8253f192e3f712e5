"""How far one tenant is behind an even division of its devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import add, sub

from leased.core.policy import Had

MOST_NS = 300_000_000_000


class Deficits:
    """gang: the devices of which it is known what the tenant has had, and of: the deficit of each,
    in that order and in ns. least: the least of them. other: deficits that an earlier daemon has
    noted, of devices of which that is not known yet."""

    def __init__(self) -> None:
        self.gang: tuple[str, ...] = ()
        self.of: Sequence[int] = ()
        self.least = 0
        self.other: dict[str, int] = {}

    def charge(self, had: Had) -> None:
        """The tenant has had this."""
        if self.gang != had.devices:
            self._set_gang(had.devices)
        found = list(map(add, self.of, had.even_ns))
        if had.held_ns:
            found = list(map(sub, found, had.held_ns))
        self.least = min(found)
        if self.least < -MOST_NS or max(found) > MOST_NS:
            found = list(map(bounded, found))
            self.least = min(found)
        self.of = found

    def _set_gang(self, gang: tuple[str, ...]) -> None:
        known = self.by_device()
        self.gang, self.of = gang, [known.pop(device, 0) for device in gang]
        self.other = known

    def least_of(self, gang: tuple[str, ...]) -> int:
        """The least deficit of these devices, which are the tenant's: it holds all devices at once,
        so none can catch up alone."""
        if gang == self.gang:
            return self.least
        known = self.by_device()  # it has not been charged for some of them yet
        return min([known.get(device, 0) for device in gang])

    def by_device(self) -> dict[str, int]:
        """All that are known."""
        return {**dict(zip(self.gang, self.of)), **self.other}

    def set(self, known: Mapping[str, int]) -> None:
        """Forget what the tenant has had: these are its deficits."""
        self.gang, self.of, self.least = (), (), 0
        self.other = {device: bounded(ns) for device, ns in known.items()}


def bounded(ns: int) -> int:
    """The deficit that is kept of this one."""
    return max(-MOST_NS, min(MOST_NS, ns))
