"""What all tenants have of one device's memory, and what follows from it.

Sums are kept up to date and never computed anew, so neither a question nor a change looks at other
tenants than its own. residency.py has the changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.core.clock import Clock
from leased.core.eviction_order import EvictionOrder
from leased.core.line import Place
from leased.core.memory_time import MemoryTime
from leased.core.share import Share
from leased.core.speed import Speed
from leased.core.staying import Staying
from leased.core.usage import Usage
from leased.core.whereabouts import Whereabouts, handoff_ns

NO_SHARE = Share()  # of a tenant that has no memory on the device


@dataclass
class DeviceMemory:
    """Amounts are bytes.

    room: memory that all tenants can have resident together, with fixed memory. link, paging: the
    speeds of swapped and of managed memory. total: all movable memory, resident or not, except of
    parked tenants whose memory has left. fixed: memory that can never be moved. stuck: resident
    movable memory that cannot leave for now (see Share). resident: resident memory that can leave.
    idle: the part of `resident` whose tenants do not hold. capacity: what tenants can have resident
    together beside memory that cannot be moved. version: grows whenever bringing something in may
    cost more or less than before. where: on which devices tenants have memory, of all devices.
    """

    room: int
    link: Speed = field(default_factory=Speed)
    paging: Speed = field(default_factory=Speed)
    shares: dict[int, Share] = field(default_factory=dict)
    order: EvictionOrder = field(default_factory=EvictionOrder)
    staying: Staying = field(default_factory=Staying)
    clock: Clock = field(default_factory=Clock)
    total: int = 0
    fixed: int = 0
    stuck: int = 0
    resident: int = 0
    idle: int = 0
    capacity: int = 0
    version: int = 0
    uuid: str = ""
    where: Whereabouts = field(default_factory=Whereabouts)

    def __post_init__(self) -> None:
        self._set_capacity()

    @property
    def swappers(self) -> int:
        """How many tenants swap."""
        return len(self.staying)

    def share(self, tenant: int) -> Share | None:
        """What a tenant has; None: nothing is known of it."""
        return self.shares.get(tenant)

    def fits(self) -> bool:
        """The memory of all tenants can be on the device at once."""
        return self.total <= max(0, self.room - self.fixed)

    # -- of one tenant ---------------------------------------------------------------

    def resident_of(self, tenant: int) -> int:
        share = self.shares.get(tenant)
        return share.resident if share else 0

    def reported_by(self, tenant: int) -> int:
        """Bytes that the tenant has reported to be on the device."""
        share = self.shares.get(tenant)
        return share.reported or 0 if share else 0

    def evictable(self, tenant: int) -> int:
        """Bytes of the tenant that are on the device now, without fixed memory."""
        share = self.shares.get(tenant)
        return share.evictable if share else 0

    def on_device(self, tenant: int) -> int:
        """Bytes of the tenant that are on the device now, with fixed memory."""
        share = self.shares.get(tenant)
        return share.fixed + share.evictable if share else 0

    def leaving(self, tenant: int) -> int:
        """Bytes that the tenant has been told to evict, and can evict now."""
        share = self.shares.get(tenant)
        return 0 if share is None or share.holds or share.stuck else share.leaving

    def crowded_out(self, tenant: int) -> bool:
        """Memory of others that cannot be moved leaves no room for all of the tenant's memory."""
        return self.staying.keeps_out(tenant, self.room)

    def keep_out(self, tenant: int) -> dict[int, int]:
        """Which tenants keep it out and with how many bytes, the most first; empty: none do."""
        if not self.crowded_out(tenant):
            return {}
        others = [(other, size) for other, size in self.staying.of.items() if other != tenant]
        return dict(sorted(others, key=lambda other: -other[1]))

    # -- over time -----------------------------------------------------------------------

    def memory_time(self, tenant: int, now: int) -> MemoryTime:
        """The tenant's memory over time up to then, since that was last taken over into its usage.
        This changes nothing."""
        share = self.shares.get(tenant)
        return share.time_until(now) if share else MemoryTime.since(now)

    def settle_memory_time(self, tenant: int, usage: Usage) -> None:
        """Take the tenant's memory over time into its usage, up to now."""
        share = self.shares.get(tenant)
        if share is not None:
            share.pass_time(self.clock.now)
            share.time.add_to(usage)
            share.time.taken()

    # -- what a handoff moves, and costs -----------------------------------------------

    def missing(self, tenant: int) -> int:
        """Bytes that must be restored before all of the tenant's memory is resident."""
        share = self.shares.get(tenant)
        return self._moving(share)[0] if share else 0

    def displaced(self, tenant: int) -> int:
        """Bytes that other tenants would lose if all of this one's memory became resident."""
        share = self.shares.get(tenant)
        if share is None:
            return min(self.resident, max(0, self.resident - self.capacity))
        return self._moving(share)[1]

    def _moving(self, share: Share) -> tuple[int, int]:
        """Both: bytes of its own that are missing, and of others that would be displaced."""
        capacity, others = self.capacity, self.resident - share.resident
        size = share.bytes
        size = size if size < capacity else capacity
        missing = size - share.resident - share.untouched
        displaced = others + size - capacity
        return missing if missing > 0 else 0, displaced if displaced > 0 else 0

    def handoff_ns(self, tenant: int) -> int:
        """How long a handoff to this tenant moves memory: the longer of both directions, in ns."""
        return handoff_ns([(self, self.shares.get(tenant, NO_SHARE))])

    # -- changes of one share, and of the sums it is in -------------------------------

    def _share(self, tenant: int) -> Share:
        share = self.shares.get(tenant)
        if share is None:
            time = MemoryTime.since(self.clock.now)
            share = self.shares[tenant] = Share(time=time)
        return share

    def _set_resident(self, tenant: int, share: Share, size: int) -> None:
        before = share.resident
        if size == before:
            return
        now = self.clock.now
        if now > share.time.there_at:
            share.pass_time_there(now)
        share.resident = size
        self.version += 1
        self.resident += size - before
        if not share.holds:
            self.idle += size - before
        if not before:
            self.order.add(tenant, share)
        elif not size:
            self.order.remove(tenant, share)
        if share.reported is not None:
            self.order.note_lack(tenant, share)

    def _begin_swapping(self, tenant: int, share: Share) -> None:
        """The tenant's first report shows that it swaps."""
        resident = share.resident
        self._set_resident(tenant, share, 0)
        share.reported = 0
        self.where.swapping.add(self.uuid)
        self.order.line_up(tenant, share)
        self._set_resident(tenant, share, resident)

    def _set_role(
        self, tenant: int, share: Share, holds: bool = False, place: Place | None = None
    ) -> None:
        """The tenant holds, waits at this place, or neither. It is the last of those like it."""
        now, resident = self.clock.now, share.resident
        if now > share.time.there_at:
            share.pass_time_there(now)
        if share.reported is not None:
            self._set_swapping_role(tenant, share, holds, place)
            return
        if resident:
            self.order.put_last(tenant, share.holds, holds)
            if share.holds != holds:
                self.idle += resident if share.holds else -resident
        share.holds, share.place = holds, place

    def _set_swapping_role(
        self, tenant: int, share: Share, holds: bool, place: Place | None
    ) -> None:
        """The same of a tenant that swaps: its memory leaves by its place in the line."""
        resident, order = share.resident, self.order
        if resident:
            order.remove(tenant, share)
            self.idle -= 0 if share.holds else resident
        order.leave_line(tenant, share)
        share.holds, share.place = holds, place
        order.line_up(tenant, share)
        if resident:
            order.add(tenant, share)
            self.idle += 0 if holds else resident
        order.note_lack(tenant, share)

    def _set_counted(self, share: Share) -> None:
        """Count the tenant's memory in the total, unless it is parked and all has left."""
        away = share.parked and not (share.resident or share.leaving or share.stuck)
        counted = 0 if away else share.bytes
        self.total += counted - share.counted
        share.counted = counted
        self.version += 1

    def _set_stuck(self, tenant: int, share: Share) -> None:
        share.pass_time(self.clock.now)
        stuck = (share.reported or 0) if share.frozen or share.stalled else 0
        if stuck != share.stuck:
            self.stuck += stuck - share.stuck
            share.stuck = stuck
            self._set_capacity()
        self.staying.keep(tenant, share.fixed + stuck)
        if share.swaps:
            self.staying.need(tenant, share.bytes - stuck)
        self.staying.note(self.room)

    # -- of the device -----------------------------------------------------------------

    def _set_capacity(self) -> None:
        """The room, fixed memory or stuck memory has changed."""
        self.capacity = max(0, self.room - self.fixed - self.stuck)

    def _note_full(self) -> None:
        """What is resident, or the capacity, has changed."""
        if self.resident > self.capacity:
            self.where.full.add(self.uuid)
        else:
            self.where.full.discard(self.uuid)
