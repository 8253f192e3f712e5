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

    waiting: all tenants that swap and wait, with resident bytes or without. lacking: those of them
    of whose memory some is not on the device.
    """

    def __init__(self) -> None:
        self.waiting: Line[int] = Line()
        self.lacking: Line[int] = Line()
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
        if share.holds:
            self.holding[tenant] = None
        elif share.place is None or share.reported is None:
            self.resting[tenant] = None
        else:
            self.waiting_with_bytes.add(share.place, tenant)

    def remove(self, tenant: int, share: Share) -> None:
        """The tenant has none any more. It must hold or wait as it did when it was added."""
        if share.holds:
            del self.holding[tenant]
        elif share.place is None or share.reported is None:
            del self.resting[tenant]
        else:
            self.waiting_with_bytes.remove(share.place, tenant)

    def put_last(self, tenant: int, held: bool, holds: bool) -> None:
        """The tenant, which has resident bytes and does not swap, begins or ceases to hold or to
        wait. It comes last among tenants like it."""
        del (self.holding if held else self.resting)[tenant]
        (self.holding if holds else self.resting)[tenant] = None

    def line_up(self, tenant: int, share: Share) -> None:
        """The tenant waits from now on."""
        if share.place is not None and share.swaps:
            self.waiting.add(share.place, tenant)

    def leave_line(self, tenant: int, share: Share) -> None:
        """The tenant does not wait any more."""
        if share.place is not None and share.swaps:
            self.waiting.remove(share.place, tenant)

    def note_lack(self, tenant: int, share: Share) -> None:
        """The tenant, which swaps, has more or less memory, on the device or off it, or another
        place."""
        lacks = share.bytes > share.resident + share.untouched
        place = share.place if lacks else None
        if place != share.lacks_at:
            if share.lacks_at is not None:
                self.lacking.remove(share.lacks_at, tenant)
            if place is not None:
                self.lacking.add(place, tenant)
            share.lacks_at = place

    def lacking_among(self, most: int) -> list[int]:
        """Of so many waiters at the front those that lack memory."""
        entries = self.waiting.entries
        if len(entries) <= most:
            return list(self.lacking)
        return self.lacking.up_to(entries[most - 1][0])
