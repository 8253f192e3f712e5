"""When the leases of holders with many devices end, found without a look at each device."""

from __future__ import annotations

from typing import Any

from leased.core.line import Line
from leased.core.taken import Taken

Layer = tuple[int, int]  # devices, and the latest end on them


class WideEnds:
    """Ends are ns; devices are bits of a number. The latest ends of all devices are found as
    layers: of the holder whose lease ends last all devices, of the one before it those that are
    left, and so on. Gangs with many devices have many in common, so there are few layers."""

    def __init__(self) -> None:
        self._ends: Line[int] = Line()  # the tenants by their ends
        self._of: dict[int, tuple[int, int]] = {}  # by tenant: its end and its devices
        self._taken = Taken()
        self._layers: list[Layer] | None = None  # None: to be found again

    def __getstate__(self) -> dict[str, Any]:
        """Its fields without the layers, which are there or not by who has asked."""
        return {**vars(self), "_layers": None}

    def put(self, tenant: int, mask: int, end: int | None) -> None:
        """The lease of the tenant with these devices ends then; None: unknown, or it has ended."""
        before = self._of.pop(tenant, None)
        if before is not None:
            self._ends.remove(before[0], tenant)
            self._taken.remove(before[1])
        if end is not None:
            self._of[tenant] = end, mask
            self._ends.add(end, tenant)
            self._taken.add(mask)
        self._layers = None

    def last(self, mask: int) -> int | None:
        """The latest end on one of these devices; None: there is none."""
        layers = self._layers
        if layers is None:
            layers = self._layers = self._find()
        for devices, end in layers:
            if devices & mask:
                return end
        return None

    def _find(self) -> list[Layer]:
        layers, left = [], self._taken.mask
        for end, tenant in reversed(self._ends.entries):
            new = self._of[tenant][1] & left
            if new:
                layers.append((new, end))
                left ^= new
                if not left:
                    break
        return layers
