"""How many bytes of each tenant are in a device's memory, as a model: pure, no NVML.

The driver does not say what is resident, so this model follows what must happen: a tenant that
computes brings in what it lacks, and others lose what there is no room for. Those lose memory first
that need it latest (Belady 1966, as the order of the turns is known): tenants that neither hold nor
wait with swapped memory, the least recently granted first; then waiters that swap, from the back of
the line; then holders. The model tells what a handoff moves and, with the speed of the link, what
it costs.

Tenants that swap report what they have on the device, and are told what to evict (`lost`). What
they were told to evict counts as gone, so that no byte is asked for twice. If a tenant cannot act,
or evicts nothing for a while, its memory counts as stuck (Share.stuck) until it leaves after all.

Sums are kept up to date and never computed anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from leased.memory.memory_time import MemoryTime
from leased.memory.share import Place, Share
from leased.memory.speed import Speed
from leased.usage.usage import Usage

NO_SHARE = Share()  # of a tenant that has no memory on the device
PAGING_PART = 64  # the driver can move managed memory page by page in this part of the room
# Swapped memory leaves holders with managed memory this part, so that what its programs allocate
# before others have evicted for it does not take the last of it.
KEPT_PART = 16


class Whereabouts:
    """Of all devices of the node. of: by tenant and UUID, what it has on the devices where it has
    memory, or swaps. full: the devices where more memory is resident than there is room for, since
    holders need it. swapping: those where somebody swaps. now: the time of the event that the
    arbiter handles, in ns."""

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self.of: dict[int, dict[str, Part]] = {}
        self.full: set[str] = set()
        self.swapping: set[str] = set()

    def enter(self, tenant: int, device: Residency, share: Share) -> None:
        """The tenant has memory on the device from now on."""
        parts = self.of.setdefault(tenant, {})
        if device.uuid not in parts:
            parts[device.uuid] = device, share

    def leave(self, tenant: int, device: Residency) -> None:
        """The tenant has none there any more; it may have had none before."""
        parts = self.of.get(tenant)
        if parts is not None and parts.pop(device.uuid, None) is not None and not parts:
            del self.of[tenant]


@dataclass
class Residency:
    """Amounts are bytes.

    room: memory that all tenants can have resident together, with fixed memory. link, paging: the
    speeds of swapped and of managed memory. total: all movable memory, resident or not, except of
    parked tenants whose memory has left. fixed: memory that can never be moved. stuck: resident
    movable memory that cannot leave for now (see Share). resident: resident memory that can leave.
    idle: the part of `resident` whose tenants do not hold. capacity: what tenants can have resident
    together beside memory that cannot be moved. swappers: tenants that swap. mixed: some of its
    tenants swap, and some do not.

    resting, queued, holding: tenants with resident bytes, in the order in which they lose them; of
    those that are queued, which swap and wait, the last in the line is first. affected: tenants
    that may have room now and had none, or the reverse; shrunk: waiters that have lost memory; and
    lost: bytes that tenants which swap have to give up, by tenant; all since they were asked for.
    """

    room: int
    uuid: str = ""
    where: Whereabouts = field(default_factory=Whereabouts)
    affected: set[int] = field(default_factory=set)
    shrunk: set[int] = field(default_factory=set)
    link: Speed = field(default_factory=Speed)
    paging: Speed = field(default_factory=Speed)
    shares: dict[int, Share] = field(default_factory=dict)
    swappers: dict[int, Share] = field(default_factory=dict)
    resting: OrderedDict[int, Share] = field(default_factory=OrderedDict)
    queued: dict[int, Share] = field(default_factory=dict)
    holding: OrderedDict[int, Share] = field(default_factory=OrderedDict)
    lost: dict[int, int] = field(default_factory=dict)
    total: int = 0
    fixed: int = 0
    stuck: int = 0
    resident: int = 0
    idle: int = 0
    capacity: int = 0
    mixed: bool = False

    def __post_init__(self) -> None:
        self._set_capacity()

    # -- questions -------------------------------------------------------------------

    def of(self, tenant: int) -> Share:
        """What a tenant has, which may be nothing."""
        return self.shares.get(tenant, NO_SHARE)

    def fits(self) -> bool:
        """The memory of all tenants can be on the device at once."""
        return self.total <= max(0, self.room - self.fixed)

    # -- of one tenant ---------------------------------------------------------------

    def evictable(self, tenant: int) -> int:
        """Bytes of the tenant that are on the device now, without fixed memory."""
        return self.shares.get(tenant, NO_SHARE).evictable

    def leaving(self, tenant: int) -> int:
        """Bytes that the tenant has been told to evict, and can evict now."""
        share = self.shares.get(tenant, NO_SHARE)
        return 0 if share.holds or share.stuck or share.stalled else share.leaving

    def crowded_out(self, tenant: int) -> bool:
        """Memory of others that cannot be moved leaves no room for what the tenant must have there:
        all that it swaps, which may be a hundredth more than the room, since about as much is kept
        free, unless a turn has shown that it is not. Of managed memory, beside swapped memory that
        is stuck: enough for the driver to move pages."""
        stays = self.fixed + self.stuck
        share = self.shares.get(tenant) if stays else None
        if share is None or stays == share.stays:
            return False
        own = share.fixed - share.stays
        if share.swaps:
            spare = 0 if share.unserved else self.room // 100
            return share.bytes + own + stays > self.room + spare
        return (
            self.stuck > 0 and min(share.bytes, self.room // PAGING_PART) + own + stays > self.room
        )

    def awaits_room(self, swaps: bool) -> bool:
        """Swapped memory that has been told to leave has not, and there is too much meanwhile for a
        tenant with managed memory; or, if the tenant swaps, for those beside which it holds."""
        if swaps and not self._pages():
            return False
        leaving = sum(self.leaving(tenant) for tenant in self.swappers)
        return leaving > 0 and (swaps or self.resident + leaving > self.capacity)

    def keep_out(self, tenant: int) -> dict[int, int]:
        """Which tenants keep it out and with how many bytes, the most first; empty: none do."""
        if not self.crowded_out(tenant):
            return {}
        others = [(n, s.stays) for n, s in self.shares.items() if n != tenant and s.stays]
        return dict(sorted(others, key=lambda other: -other[1]))

    # -- managed memory beside swapped memory ------------------------------------------

    def _tenants_changed(self) -> None:
        """One is new or gone, or swaps from now on."""
        self.mixed = 0 < len(self.swappers) < len(self.shares)

    def _floor(self, share: Share) -> int:
        """What the tenant needs beside swapped memory while it holds, since the driver kills a
        program for whose pages it finds no room."""
        if share.swaps or not share.holds or not self.mixed:
            return 0
        return min(share.bytes, self.room // KEPT_PART)

    def _pages(self, but: Share | None = None) -> int:
        """What holders with managed memory, but for this one, need there."""
        if not self.mixed:
            return 0
        return sum(self._floor(share) for share in self.shares.values() if share is not but)

    def _most(self, share: Share) -> int:
        """What the tenant can have there, whatever others lose for it."""
        return max(0, self.capacity - self._pages(but=share)) if self.mixed else self.capacity

    def _free(self) -> int:
        """Room for swapped memory; below 0: there is too much of it."""
        free = self.capacity - self.resident
        if self.mixed:
            free -= sum(max(0, self._floor(s) - s.resident) for s in self.shares.values())
        return free

    def _are_together(self) -> bool:
        """Holders with managed memory hold beside one that swaps."""
        return self._pages() > 0 and any(share.holds for share in self.swappers.values())

    def _clear(self) -> None:
        """Where they are together no swapped memory stays whose tenants do not hold: what one of
        them allocates at its turn would take the last of the room before it left."""
        for tenant, share in self.swappers.items():
            if not share.holds and share.resident:
                self._lose(tenant, share, share.resident, None)

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
            share.pass_time(self.where.now)
            share.time.add_to(usage)
            share.time.taken()

    # -- what a handoff moves, and costs -----------------------------------------------

    def missing(self, tenant: int) -> int:
        """Bytes that must be restored before all of the tenant's memory is resident."""
        return self._moving(self.shares.get(tenant, NO_SHARE))[0]

    def displaced(self, tenant: int) -> int:
        """Bytes that other tenants would lose if all of this one's memory became resident."""
        return self._moving(self.shares.get(tenant, NO_SHARE))[1]

    def _moving(self, share: Share) -> tuple[int, int]:
        """Both: bytes of its own that are missing, and of others that would be displaced."""
        most, resident, size = self._most(share), share.resident, share.bytes
        size = size if size < most else most
        missing = size - resident - share.untouched
        displaced = size - resident - self._free()
        return missing if missing > 0 else 0, displaced if displaced > 0 else 0

    # -- what tenants and the driver say ----------------------------------------------

    def set_bytes(
        self,
        tenant: int,
        size: int,
        holds: bool,
        fixed: int = 0,
        reported: int | None = None,
        *,
        place: Place | None = None,
    ) -> int:
        """The tenant has `size` bytes that can be moved and `fixed` more. One that swaps reports
        that so many of them are on the device; None: its memory is managed. place: its place in
        the line.

        Returns the bytes that others lost by it.
        """
        share = self._share(tenant)
        if not share.has_any:  # its role was not followed meanwhile
            share.holds, share.place = holds, None if holds else place
        share.pass_time(self.where.now)
        if reported is not None and not share.swaps:
            self._begin_swapping(tenant, share)
        if fixed != share.fixed:
            self.fixed += fixed - share.fixed
            share.fixed = fixed
            self._set_capacity()
            self.affected.update(self.shares if self.stuck else self.swappers)
        if size != share.bytes and (share.swaps or self.stuck):
            self.affected.add(tenant)
        share.untouched = min(size, share.untouched + max(0, size - share.bytes))
        share.bytes = size
        if reported is not None:
            share.report(reported)
        self._set_stuck(share)
        resident = share.resident if reported is None else share.movable
        self._set_resident(tenant, share, min(resident, size - share.untouched))
        self._set_counted(share)
        if share.counts:
            self.where.enter(tenant, self, share)
        else:
            self.where.leave(tenant, self)
        lost = self.touch(tenant)[1] if holds else self.squeeze(tenant)
        self._note_full()
        return lost

    def set_room(self, room: int) -> None:
        """From now on tenants can have so many bytes together."""
        self.room = room
        self._set_capacity()
        self.affected.update(self.shares if self.stuck else self.swappers)
        self.squeeze()
        self._note_full()

    def learn_speed(self, tenant: int, moved: int, ns: int) -> None:
        """The tenant restored so many bytes in so many ns."""
        share = self.shares.get(tenant)
        (self.link if share is not None and share.swaps else self.paging).learn(moved, ns)

    def forget(self, tenant: int) -> None:
        """The tenant is closed, and its memory is free."""
        share = self.shares.get(tenant)
        if share is None:
            return
        self._set_role(tenant, share)
        self._set_resident(tenant, share, 0)
        self.total -= share.counted
        self.fixed -= share.fixed
        self.stuck -= share.stuck
        self.swappers.pop(tenant, None)
        self.affected.update(self.shares if share.stays else ())
        self.affected.discard(tenant)
        self.lost.pop(tenant, None)
        self.shrunk.discard(tenant)
        del self.shares[tenant]
        self._tenants_changed()
        self.where.leave(tenant, self)
        if not self.swappers:
            self.where.swapping.discard(self.uuid)
        self._set_capacity()
        self._note_full()

    def part_of(self, tenant: int) -> Part:
        """What a tenant has, which may be nothing."""
        return self, self.shares.get(tenant, NO_SHARE)

    # -- who holds, who waits ----------------------------------------------------------

    def touch(self, tenant: int) -> tuple[int, int]:
        """The tenant holds: all of it becomes resident. Returns (bytes in, bytes of others out)."""
        share = self.shares.get(tenant) or self._share(tenant)
        if share.reported is None:
            return self._touch_managed(tenant, share)
        self._keep(tenant, share)
        bytes_in, bytes_out = self._moving(share)
        self._set_role(tenant, share, holds=True)
        movable = max(0, share.bytes - share.stuck)  # it may report more than it has
        self._set_resident(tenant, share, min(movable, self._most(share)))
        if bytes_out:
            self._take(bytes_out, tenant)
        if self.mixed and self._are_together():
            self._clear()
        # What it has reported has been used, also where there is no room for it in the model.
        there = max(share.resident + share.stuck, share.reported)
        share.untouched = max(0, share.bytes - there)
        if self.uuid in self.where.full:
            self._note_full()
        return bytes_in, bytes_out

    def _touch_managed(self, tenant: int, share: Share) -> tuple[int, int]:
        """The same of managed memory, none of which is ever told to leave, or stuck."""
        now = self.where.now
        if now > share.time.there_at:
            share.pass_time_there(now)
        before, size, most = share.resident, share.bytes, self._most(share)
        size = size if size < most else most
        more = size - before
        bytes_in, bytes_out = more - share.untouched, self.resident + more - self.capacity
        if before:
            (self.holding if share.holds else self.resting).pop(tenant)
            self.holding[tenant] = share
            self.idle -= 0 if share.holds else before
        share.holds, share.place = True, None
        if more:
            share.resident = size
            self.resident += more
            if not before:
                self.holding[tenant] = share
            elif not size:
                del self.holding[tenant]
        if bytes_out > 0:
            self._take(bytes_out, tenant)
        share.untouched = share.bytes - size
        if self.mixed and self._are_together():
            self._clear()
        if self.uuid in self.where.full:
            self._note_full()
        return bytes_in if bytes_in > 0 else 0, bytes_out if bytes_out > 0 else 0

    def _keep(self, tenant: int, share: Share) -> None:
        """A tenant that swaps keeps what it was told to evict and has not evicted."""
        share.pass_time(self.where.now)
        share.leaving = share.coming = share.recalled = 0
        if share.stalled:
            share.stalled = False
            self._set_stuck(share)
        self.lost.pop(tenant, None)

    def rest(self, tenant: int) -> None:
        """The tenant does not hold any more. If it swaps, its report says what is resident."""
        share = self.shares.get(tenant) or self._share(tenant)
        self._set_role(tenant, share)
        if share.reported is not None:  # it swaps
            self._set_resident(tenant, share, share.movable)
            if self._pages():
                self._clear()
            self.squeeze()
            self._note_full()

    def wait(self, tenant: int, place: Place | None) -> None:
        """The tenant has this place in the line; None: it does not wait any more."""
        share = self.shares.get(tenant)
        if share is not None and not share.holds:
            self._set_role(tenant, share, place=place)

    def preload(self, tenant: int, displace: bool) -> tuple[int, int]:
        """Let a waiter that swaps restore what there is room for. With `displace`, which is for
        the first in the line, tenants that do not hold make room for it.

        Where holders with managed memory hold beside one that swaps it waits for its turn.

        Returns (bytes in, bytes of others out).
        """
        share = self._share(tenant)
        if not share.swaps or share.leaving or share.coming:
            return 0, 0
        missing = self.missing(tenant)
        if not missing or self._are_together():
            return 0, 0
        free = self._free()
        if displace:
            free = max(0, free) + self.idle - share.resident
        share.pass_time(self.where.now)
        share.coming = bytes_in = max(0, min(missing, free))
        share.recalled = 0
        self._set_resident(tenant, share, share.resident + bytes_in)
        bytes_out = max(0, self.resident - self.capacity) if bytes_in else 0
        self._take(bytes_out, tenant)
        self._note_full()
        return bytes_in, bytes_out

    # -- who is parked, frozen or stalled ----------------------------------------------

    def leave(self, tenant: int) -> int:
        """All memory of the tenant leaves the device, though nobody needs it. Returns the bytes."""
        share = self._share(tenant)
        share.pass_time(self.where.now)
        share.recalled += share.coming
        share.parked, share.stalled, share.coming = True, False, 0
        self._set_stuck(share)
        left = 0
        if not share.stuck:
            left, share.leaving = share.resident, share.reported or 0
            share.taker, share.taken = tenant, left
            self.lost.pop(tenant, None)
            self._set_resident(tenant, share, 0)
        self._set_counted(share)
        self._note_full()
        return left

    def unpark(self, tenant: int) -> None:
        """The tenant is not parked any more."""
        share = self._share(tenant)
        share.pass_time(self.where.now)
        share.parked = False
        self._set_counted(share)

    def freeze(self, tenant: int, frozen: bool) -> None:
        """The tenant's processes cannot act, or can again. Its memory stays meanwhile."""
        share = self._share(tenant)
        share.frozen = frozen
        self._follow_stuck(tenant, share)

    def stall(self, tenant: int) -> None:
        """The tenant does not evict what it was told to evict, so all its resident memory counts
        as staying until some has left or the tenant holds again."""
        share = self._share(tenant)
        share.stalled = share.leaving > 0
        self._follow_stuck(tenant, share)

    # -- who gives up what -------------------------------------------------------------

    def squeeze(self, taker: int | None = None) -> int:
        """Where more is resident than there is room for, tenants that do not hold lose the excess.
        taker: the tenant for which that counts as moved. Returns the bytes lost."""
        lost = min(self.resident - self.capacity, self.idle)
        if lost <= 0:
            return 0
        self._take(lost, taker)
        return lost

    def uncount(self, tenant: int, size: int) -> tuple[int | None, int]:
        """The tenant evicted so many bytes without copying them. Returns the tenant for which they
        were counted as moved, and how many of them were counted."""
        share = self._share(tenant)
        counted = min(size, share.taken)
        share.taken -= counted
        return share.taker, counted

    def take_lost(self) -> dict[int, int]:
        """What tenants that swap must evict and were not told yet, by tenant."""
        lost, self.lost = self.lost, {}
        return lost

    def _take(self, size: int, taker: int | None) -> None:
        """Take so many bytes, first from tenants that do not hold, or as much as there is."""
        while size > 0 and (found := self._first_to_lose()):
            loser, share, most = found
            lost = size if size < most else most
            size -= lost
            self._lose(loser, share, lost, taker)

    def _lose(self, loser: int, share: Share, lost: int, taker: int | None) -> None:
        if share.place is not None:
            self.shrunk.add(loser)
        if share.reported is not None and not share.holds:  # a holder keeps all that it has
            share.taken = lost + (share.taken if share.leaving else 0)
            share.taker = taker
            self.lost[loser] = self.lost.get(loser, 0) + lost
            share.evict(lost)
        self._set_resident(loser, share, share.resident - lost)

    # -- one share ---------------------------------------------------------------------

    def _follow_stuck(self, tenant: int, share: Share) -> None:
        """Follow a change of what can be moved, which changes what is resident and evictable."""
        self._set_stuck(share)
        if share.swaps:
            self._set_resident(tenant, share, share.movable)
        self.squeeze()
        self._note_full()

    # -- changes of one share, and of the sums it is in -------------------------------

    def _share(self, tenant: int) -> Share:
        share = self.shares.get(tenant)
        if share is None:
            time = MemoryTime.since(self.where.now)
            share = self.shares[tenant] = Share(time=time)
            self._tenants_changed()
        return share

    def _set_resident(self, tenant: int, share: Share, size: int) -> None:
        before = share.resident
        if size == before:
            return
        now = self.where.now
        if now > share.time.there_at:
            share.pass_time_there(now)
        share.resident = size
        self.resident += size - before
        if not share.holds:
            self.idle += size - before
        if not before:
            self._order_of(share)[tenant] = share
        elif not size:
            del self._order_of(share)[tenant]

    def _begin_swapping(self, tenant: int, share: Share) -> None:
        """The tenant's first report shows that it swaps."""
        resident = share.resident
        self._set_resident(tenant, share, 0)
        share.reported = 0
        self.swappers[tenant] = share
        self._tenants_changed()
        self.where.swapping.add(self.uuid)
        self._set_resident(tenant, share, resident)

    def _set_role(
        self, tenant: int, share: Share, holds: bool = False, place: Place | None = None
    ) -> None:
        """The tenant holds, waits at this place, or neither. It is the last of those like it."""
        now, resident = self.where.now, share.resident
        if now > share.time.there_at:
            share.pass_time_there(now)
        if resident:
            del self._order_of(share)[tenant]
            self.idle -= 0 if share.holds else resident
        share.holds, share.place = holds, place
        if resident:
            self._order_of(share)[tenant] = share
            self.idle += 0 if holds else resident

    def _order_of(self, share: Share) -> dict[int, Share]:
        """Among whom it loses memory."""
        if share.holds:
            return self.holding
        return self.resting if share.place is None or share.reported is None else self.queued

    def _first_to_lose(self) -> tuple[int, Share, int] | None:
        """The tenant that loses memory first, and how much it can lose; None: no tenant can."""
        if self.resting:
            loser, share = next(iter(self.resting.items()))
            return loser, share, share.resident
        if self.queued:
            loser, share = max(self.queued.items(), key=lambda item: item[1].place or 0)
            return loser, share, share.resident
        for loser, share in self.holding.items():
            most = share.resident - self._floor(share)
            if most > 0:
                return loser, share, most
        return None

    def _set_counted(self, share: Share) -> None:
        """Count the tenant's memory in the total, unless it is parked and all has left."""
        away = share.parked and not (share.resident or share.leaving or share.stuck)
        counted = 0 if away else share.bytes
        self.total += counted - share.counted
        share.counted = counted

    def _set_stuck(self, share: Share) -> None:
        share.pass_time(self.where.now)
        stuck = (share.reported or 0) if share.frozen or share.stalled else 0
        if stuck != share.stuck:
            self.stuck += stuck - share.stuck
            share.stuck = stuck
            self._set_capacity()
            self.affected.update(self.shares)

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


# A device, and what a tenant has there.
Part = tuple[Residency, Share]


def handoff_ns(parts: Iterable[Part]) -> int:
    """How long moving memory takes if the tenant with these parts is granted next: on the device
    where it takes longest, and in the direction in which it does, in ns."""
    found = 0.0
    for device, share in parts:
        size, capacity = share.bytes, device.capacity
        moved = (size if size < capacity else capacity) - share.resident
        # What was never used need not come in; of others as much must leave as there is too much.
        excess, untouched = device.resident - capacity, -share.untouched
        moved += excess if excess > untouched else untouched
        if moved > 0:
            speed = device.paging if share.reported is None else device.link
            took = moved / speed.bytes_s
            found = found if found > took else took
    return int(found * 1e9)
