"""Which tenant loses memory first when a device is full."""

from __future__ import annotations

from collections import OrderedDict

from leased.core.line import Line
from leased.core.share import Share


class EvictionOrder:
    """Tenants with resident bytes, in the order in which they lose them: tenants that neither hold
    nor wait with swapped memory, the least recently granted first; then waiters that swap, from
    the back of the line; then holders. So the tenant that needs its memory latest loses it first
    (Belady 1966, as the order of the turns is known).

    waiting: all tenants that swap and wait, with resident bytes or without.
    """

    def __init__(self) -> None:
        self.waiting: Line[int] = Line()
        self.resting: OrderedDict[int, None] = OrderedDict()
        self.waiting_with_bytes: Line[int] = Line()
        self.holding: OrderedDict[int, None] = OrderedDict()

    def first(self) -> int:
        """The tenant that loses memory first. StopIteration: no tenant has any."""
        if self.resting:
            return next(iter(self.resting))
        if self.waiting_with_bytes:
            return self.waiting_with_bytes.last()
        return next(iter(self.holding))

    def add(self, tenant: int, share: Share) -> None:
        """The tenant has resident bytes from now on. It comes last among tenants like it."""
        if share.place is not None and share.swaps:
            self.waiting_with_bytes.add(share.place, tenant)
        else:
            (self.holding if share.holds else self.resting)[tenant] = None

    def remove(self, tenant: int, share: Share) -> None:
        """The tenant has none any more. It must hold or wait as it did when it was added."""
        if share.place is not None and share.swaps:
            self.waiting_with_bytes.remove(share.place, tenant)
        else:
            del (self.holding if share.holds else self.resting)[tenant]

    def line_up(self, tenant: int, share: Share) -> None:
        """The tenant waits from now on."""
        if share.place is not None and share.swaps:
            self.waiting.add(share.place, tenant)

    def leave_line(self, tenant: int, share: Share) -> None:
        """The tenant does not wait any more."""
        if share.place is not None and share.swaps:
            self.waiting.remove(share.place, tenant)
