"""How many bytes of each tenant are in a device's memory, as a model: pure, no NVML.

The driver does not say what is resident, so this model follows what must happen: a tenant that
computes brings in what it lacks, and others lose what there is no room for, in the order of
eviction_order.py. The model tells what a handoff moves and, with the speed of the link, what it
costs (device_memory.py).

Tenants that swap report what they have on the device, and are told what to evict (`lost`). What
they were told to evict counts as gone, so that no byte is asked for twice. If a tenant cannot act,
or evicts nothing for a while, its memory counts as stuck (Share.stuck) until it leaves after all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.core.device_memory import NO_SHARE, DeviceMemory
from leased.core.line import Place
from leased.core.share import Share
from leased.core.speed import Speed
from leased.core.whereabouts import Part


@dataclass
class Residency(DeviceMemory):
    """shrunk: waiters that have lost memory since that was last asked for. lost: bytes that
    tenants which swap have to give up, by tenant, since that was last asked for."""

    shrunk: set[int] = field(default_factory=set)
    lost: dict[int, int] = field(default_factory=dict)

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
        self.version += 1
        share = self._share(tenant)
        if not share.has_any:  # its role was not followed meanwhile
            share.holds, share.place = holds, None if holds else place
        share.pass_time(self.clock.now)
        if reported is not None and not share.swaps:
            self._begin_swapping(tenant, share)
        self.fixed += fixed - share.fixed
        share.fixed = fixed
        self._set_capacity()
        share.untouched = min(size, share.untouched + max(0, size - share.bytes))
        share.bytes = size
        if reported is not None:
            share.report(reported)
        self._set_stuck(tenant, share)
        resident = share.resident if reported is None else share.movable
        self._set_resident(tenant, share, min(resident, size - share.untouched))
        if share.swaps:
            self.order.note_lack(tenant, share)
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
        self.version += 1
        self.room = room
        self._set_capacity()
        self.staying.note(room)
        self.squeeze()
        self._note_full()

    def set_speed(self, speed: Speed, swaps: bool) -> None:
        """Set the known speed of swapped memory, or of managed memory."""
        self.version += 1
        if swaps:
            self.link = speed
        else:
            self.paging = speed

    def learn_speed(self, tenant: int, moved: int, ns: int) -> None:
        """The tenant restored so many bytes in so many ns."""
        self.version += 1
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
        self.staying.keep(tenant, 0)
        self.staying.need(tenant, None)
        self.staying.note(self.room)
        self.staying.affected.discard(tenant)
        self.lost.pop(tenant, None)
        self.shrunk.discard(tenant)
        del self.shares[tenant]
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
        self._set_resident(tenant, share, min(movable, self.capacity))
        if bytes_out:
            self._take(bytes_out, tenant)
        share.untouched = max(0, share.bytes - share.resident - share.stuck)
        if self.uuid in self.where.full:
            self._note_full()
        return bytes_in, bytes_out

    def _touch_managed(self, tenant: int, share: Share) -> tuple[int, int]:
        """The same of managed memory, none of which is ever told to leave, or stuck."""
        now = self.clock.now
        if now > share.time.there_at:
            share.pass_time_there(now)
        before, size, capacity = share.resident, share.bytes, self.capacity
        size = size if size < capacity else capacity
        more = size - before
        bytes_in, bytes_out = more - share.untouched, self.resident + more - capacity
        if before:
            self.order.put_last(tenant, share.holds, True)
            self.idle -= 0 if share.holds else before
        share.holds, share.place = True, None
        if more:
            share.resident = size
            self.resident += more
            self.version += 1
            if not before:
                self.order.add(tenant, share)
            elif not size:
                self.order.remove(tenant, share)
        if bytes_out > 0:
            self._take(bytes_out, tenant)
        share.untouched = share.bytes - size
        if self.uuid in self.where.full:
            self._note_full()
        return bytes_in if bytes_in > 0 else 0, bytes_out if bytes_out > 0 else 0

    def _keep(self, tenant: int, share: Share) -> None:
        """A tenant that swaps keeps what it was told to evict and has not evicted."""
        share.pass_time(self.clock.now)
        share.leaving = share.coming = 0
        if share.stalled:
            share.stalled = False
            self._set_stuck(tenant, share)
        self.lost.pop(tenant, None)

    def rest(self, tenant: int) -> None:
        """The tenant does not hold any more. If it swaps, its report says what is resident."""
        share = self.shares.get(tenant) or self._share(tenant)
        self._set_role(tenant, share)
        if share.reported is not None:  # it swaps
            self._set_resident(tenant, share, share.movable)
            self._note_full()

    def wait(self, tenant: int, place: Place | None) -> None:
        """The tenant has this place in the line; None: it does not wait any more."""
        share = self.shares.get(tenant)
        if share is not None and not share.holds:
            self._set_role(tenant, share, place=place)

    def preload(self, tenant: int, displace: bool) -> tuple[int, int]:
        """Let a waiter that swaps restore what there is room for. With `displace`, which is for
        the first in the line, tenants that do not hold make room for it.

        Returns (bytes in, bytes of others out).
        """
        share = self._share(tenant)
        if not share.swaps or share.leaving or share.coming:
            return 0, 0
        missing = self.missing(tenant)
        if not missing:
            return 0, 0
        free = max(0, self.capacity - self.resident)
        if displace:
            free += self.idle - share.resident
        share.pass_time(self.clock.now)
        share.coming = bytes_in = min(missing, free)
        self._set_resident(tenant, share, share.resident + bytes_in)
        bytes_out = max(0, self.resident - self.capacity) if bytes_in else 0
        self._take(bytes_out, tenant)
        self._note_full()
        return bytes_in, bytes_out

    # -- who is parked, frozen or stalled ----------------------------------------------

    def leave(self, tenant: int) -> int:
        """All memory of the tenant leaves the device, though nobody needs it. Returns the bytes."""
        share = self._share(tenant)
        share.pass_time(self.clock.now)
        share.parked, share.stalled, share.coming = True, False, 0
        self._set_stuck(tenant, share)
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
        share.pass_time(self.clock.now)
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
        """Take so many bytes from tenants that do not hold, which is at most what they have."""
        while size > 0:
            loser = self.order.first()
            share = self.shares[loser]
            resident = share.resident
            lost = size if size < resident else resident
            self._set_resident(loser, share, resident - lost)
            size -= lost
            if share.place is not None:
                self.shrunk.add(loser)
            if share.reported is not None:
                share.taken = lost + (share.taken if share.leaving else 0)
                share.taker = taker
                share.leaving += lost
                self.lost[loser] = self.lost.get(loser, 0) + lost

    # -- one share ---------------------------------------------------------------------

    def _follow_stuck(self, tenant: int, share: Share) -> None:
        """Follow a change of what can be moved, which changes what is resident and evictable."""
        self._set_stuck(tenant, share)
        if share.swaps:
            self._set_resident(tenant, share, share.movable)
        self.squeeze()
        self._note_full()
