"""The memory of one tenant on one device."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from leased.core.line import Place
from leased.core.memory_time import MemoryTime


@dataclass
class Share:
    """Amounts are bytes.

    bytes: all that can be moved, on the device or not. fixed: more, which cannot be moved.
    resident: what of `bytes` the model has on the device. untouched: what of them was allocated
    and never used. reported: what a tenant that swaps has said is on the device; None: its
    memory is managed. leaving: the part of that which the tenant was told to give up and still
    has. coming: what it was told to bring in before its turn, and has not. stuck: the part of
    what was reported that nobody can move for the time being. counted: what of `bytes` is in the
    device's total.

    place: the tenant's place among the waiters. holds: it has a lease. parked: its memory is sent
    away. frozen: its processes cannot act. stalled: it was told to give memory up and makes no
    progress. taker, taken: for which tenant what this one lost counts as moved, and how much
    since nothing was leaving; what turns out not to have been copied does not count. time: what
    all this has run up to, for the tenant's usage.
    """

    bytes: int = 0
    fixed: int = 0
    resident: int = 0
    untouched: int = 0
    reported: int | None = None
    leaving: int = 0
    coming: int = 0
    stuck: int = 0
    counted: int = 0
    place: Place | None = None
    holds: bool = False
    parked: bool = False
    frozen: bool = False
    stalled: bool = False
    taker: int | None = None
    taken: int = 0
    time: MemoryTime = field(default_factory=MemoryTime)

    @property
    def swaps(self) -> bool:
        """The tenant moves this memory itself."""
        return self.reported is not None

    @property
    def evictable(self) -> int:
        """Bytes on the device now, as far as is known, but for those that are fixed."""
        leaves = self.leaving if self.parked else 0
        return self.stuck or leaves + max(0, self.resident - self.coming)

    def pass_time(self, now: int) -> None:
        """Until now all has been as it stands here: call it before anything of that changes."""
        if now > self.time.at:
            self._advance(self.time, now)

    def time_until(self, now: int) -> MemoryTime:
        """What its time has run up to by then. This changes nothing."""
        found = replace(self.time)
        self._advance(found, now)
        return found

    def _advance(self, time: MemoryTime, now: int) -> None:
        idle = not self.holds and self.place is None
        time.advance(now, self.bytes + self.fixed, self.fixed + self.evictable, idle)

    @property
    def movable(self) -> int:
        """Bytes that are on the device once all that is on its way has arrived, and that can be
        moved again: of a tenant that swaps and does not hold."""
        if self.stuck:
            return 0
        settled = (self.reported or 0) - self.leaving + self.coming
        return max(0, min(settled, self.bytes - self.untouched))

    def report(self, resident: int) -> None:
        """The tenant says that so much is on the device now. What is less than before has left."""
        more = resident - (self.reported or 0)
        if more < 0:
            self.stalled = False
        self.leaving = max(0, self.leaving - max(0, -more))
        self.coming = max(0, self.coming - max(0, more))
        self.reported = resident
        self.untouched = min(self.untouched, max(0, self.bytes - resident))
