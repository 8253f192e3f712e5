"""The memory of one tenant on one device."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.memory.memory_time import MemoryTime

# Of a waiter in the line: the lowest is served first. One number, since numbers are compared far
# more often than made.
Place = int


@dataclass
class Share:
    """Amounts are bytes.

    bytes: all movable memory, on the device or not. fixed: memory beside it that cannot be moved.
    resident: the part of `bytes` that is on the device by the model. untouched: the part that was
    allocated and never used. reported: the part that a tenant that swaps has reported to be on the
    device; None: its memory is managed. leaving: the part of `reported` that it was told to evict
    and still has. coming: what it was told to restore before its turn, and has not. recalled: what
    it was told to restore and then to evict, and may report yet. stuck: the part of `reported` that
    cannot be moved for now. counted: the part of `bytes` that is in the device's total.

    place: the tenant's place in the line. holds: it has a lease. parked: its memory is sent away.
    frozen: its processes cannot act. stalled: it was told to evict memory and makes no progress.
    unserved: in its last turn its memory did not come back.
    taker: the tenant for which what this one loses counts as moved. taken: how much that is since
    nothing was leaving, without what was not copied. time: memory over time, for the usage.
    """

    bytes: int = 0
    fixed: int = 0
    resident: int = 0
    untouched: int = 0
    reported: int | None = None
    leaving: int = 0
    coming: int = 0
    recalled: int = 0
    stuck: int = 0
    counted: int = 0
    place: Place | None = None
    holds: bool = False
    parked: bool = False
    frozen: bool = False
    stalled: bool = False
    unserved: bool = False
    taker: int | None = None
    taken: int = 0
    time: MemoryTime = field(default_factory=MemoryTime)

    @property
    def swaps(self) -> bool:
        """The tenant swaps: its interposer moves this memory."""
        return self.reported is not None

    @property
    def stays(self) -> int:
        """What of it cannot be moved."""
        return self.fixed + self.stuck

    @property
    def lacks(self) -> bool:
        """Some of it has been used and is not on the device."""
        return self.bytes > self.resident + self.untouched

    @property
    def has_any(self) -> bool:
        """It has some memory there, or may be told to move some."""
        return self.resident != 0 or self.fixed != 0 or self.reported is not None

    @property
    def counts(self) -> bool:
        """It has memory, on the device or off it, or may be told to move some."""
        return self.bytes != 0 or self.fixed != 0 or self.reported is not None

    @property
    def evictable(self) -> int:
        """Bytes on the device now as far as is known, without fixed memory."""
        leaves = self.leaving if self.parked else 0
        return self.stuck or leaves + max(0, self.resident - self.coming)

    def pass_time(self, now: int) -> None:
        """Add up memory over time until now. Call this before any amount changes."""
        self.time.advance_wanted(now, self.bytes + self.fixed)
        self.pass_time_there(now)

    def pass_time_there(self, now: int) -> None:
        """The same of what is on the device. Call this before that alone changes, or whether the
        tenant holds or waits: what it wants seldom changes, and is added up when it does."""
        there = self.fixed + (self.resident if self.reported is None else self.evictable)
        self.time.advance_there(now, there, self.place is None and not self.holds)

    def time_until(self, now: int) -> MemoryTime:
        """Memory over time until then. This changes nothing."""
        kept, self.time = self.time, self.time.copy()
        self.pass_time(now)
        found, self.time = self.time, kept
        return found

    @property
    def movable(self) -> int:
        """Bytes that can be moved when all moves under way are done, of a tenant that swaps and
        does not hold."""
        if self.stuck:
            return 0
        settled = (self.reported or 0) - self.leaving + self.coming
        return max(0, min(settled, self.bytes - self.untouched))

    def evict(self, size: int) -> None:
        """The tenant, which swaps and does not hold, is told to evict so many bytes. Where less is
        on the device, the rest is of what is under way, and leaves only if it is reported after
        all."""
        recalled = max(0, size - max(0, (self.reported or 0) - self.leaving))
        self.leaving += size - recalled
        self.recalled += recalled
        self.coming = max(0, self.coming - recalled)

    def report(self, resident: int) -> None:
        """The tenant reports how much is on the device now. If it is less, the rest has left."""
        more = resident - (self.reported or 0)
        if more < 0:
            self.stalled = False
        late = min(self.recalled, max(0, more))
        self.recalled -= late
        self.leaving = max(0, self.leaving + late - max(0, -more))
        self.coming = max(0, self.coming - max(0, more))
        self.reported = resident
        self.untouched = min(self.untouched, max(0, self.bytes - resident))
