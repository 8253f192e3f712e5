"""How many bytes of each tenant are in a device's memory, as a model: pure, no NVML.

The driver does not say what is resident, so this follows what must happen: a
tenant that computes brings in what it lacks, and least recently granted
tenants lose as much as is lacking of room. From it follow what a handoff
moves and, with the speed of the link, what it costs. Sums are kept, not
computed: no operation looks at tenants that it does not change.

Tenants that swap say what they have there, and must be told what to give up
(`lost`): while it leaves it counts as gone, so that no byte is asked for twice.
Who cannot act, or gives up nothing for a while, keeps what it has: that counts
as if it could not be moved (`stuck`), until it leaves after all. Of those that
swap the ones that wait lose last, and the first in the queue at the very last:
who is needed latest goes first (Belady 1966; here the order of what comes is
known).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field, replace

from leased.core.clock import Clock
from leased.core.line import Line, Place
from leased.core.memory_time import MemoryTime
from leased.core.speed import Speed
from leased.core.staying import Staying


@dataclass
class Share:
    """The memory of one tenant on one device, in bytes.

    fresh: allocated and never yet touched. said: what a tenant that swaps has said is on the
    device, else None. leaving: the part of it that the tenant was told to give up and still
    has. coming: what it was told to bring in before its turn and has not. place: its place
    among the waiters. parked: it is sent away. total: of its bytes, those that the device's
    total has. frozen: its processes cannot act. stalled: it was told to give memory up
    and makes no progress.
    """

    bytes: int = 0
    resident: int = 0
    fresh: int = 0
    fixed: int = 0  # more, which cannot be moved
    said: int | None = None
    leaving: int = 0
    coming: int = 0
    place: Place | None = None
    works: bool = False
    parked: bool = False
    total: int = 0
    frozen: bool = False
    stalled: bool = False
    stuck: int = 0  # of what is said to be there, what nobody can move for the time being
    time: MemoryTime = field(default_factory=MemoryTime)

    @property
    def on_device(self) -> int:
        """Bytes that are on the device now, as far as is known; those that cannot move too."""
        leaves = self.leaving if self.parked else 0
        return self.fixed + (self.stuck or leaves + max(0, self.resident - self.coming))

    def pass_time(self, now: int) -> None:
        """Until now all has been as it stands here; call it before anything of that changes."""
        idle = not self.works and self.place is None
        self.time.advance(now, self.bytes + self.fixed, self.on_device, idle)

    @property
    def there(self) -> int:
        """Bytes of one that swaps, while it does not work, that can be moved."""
        if self.stuck:
            return 0
        found = (self.said or 0) - self.leaving + self.coming
        return max(0, min(found, self.bytes - self.fresh))

    def hear(self, said: int) -> None:
        """It says that so much is there now; what is less than before has left."""
        more = said - (self.said or 0)
        if more < 0:
            self.stalled = False
        self.leaving = max(0, self.leaving - max(0, -more))
        self.coming = max(0, self.coming - max(0, more))
        self.said = said
        self.fresh = min(self.fresh, max(0, self.bytes - said))


@dataclass
class Residency:
    """One device. room: bytes that tenants' allocations can have together, fixed ones too.

    total, fixed: movable and fixed bytes that all tenants have, resident or not, but nothing of
    those that are parked and have left; stuck: of the movable ones what is there and cannot leave
    now, see Share. resident: of the others what is there; idle: of that, what those have who do
    not work.
    """

    room: int
    link: Speed = field(default_factory=Speed)  # what is swapped moves so fast,
    paging: Speed = field(default_factory=Speed)  # and so what is managed
    shares: dict[int, Share] = field(default_factory=dict)
    # Eviction order: tenants that neither hold nor wait go first, the least recently granted
    # before the others; then waiters that swap, from the back of the line; then holders.
    recent: OrderedDict[int, Share] = field(default_factory=OrderedDict)
    awaited: Line[Place, int] = field(default_factory=Line)
    working: OrderedDict[int, Share] = field(default_factory=OrderedDict)
    line: Line[Place, int] = field(default_factory=Line)  # all who swap and wait
    total: int = 0
    fixed: int = 0
    stuck: int = 0
    resident: int = 0
    idle: int = 0
    version: int = 0  # grows whenever something costs more or less than before
    # Waiters of whose memory some was taken, since last asked for.
    shrunk: set[int] = field(default_factory=set)
    # Bytes that they have to give up, since last asked for.
    lost: dict[int, int] = field(default_factory=dict)
    staying: Staying = field(default_factory=Staying)
    clock: Clock = field(default_factory=Clock)

    @property
    def capacity(self) -> int:
        """Bytes that tenants can have resident together, beside what cannot be moved."""
        return max(0, self.room - self.fixed - self.stuck)

    @property
    def swappers(self) -> int:
        """How many tenants swap."""
        return len(self.staying)

    def fits(self) -> bool:
        return self.total <= max(0, self.room - self.fixed)

    # -- what tenants have -----------------------------------------------------------

    def set_bytes(
        self, tenant: int, size: int, running: bool, fixed: int = 0, said: int | None = None
    ) -> int:
        """A tenant now has `size` bytes, and says so if it swaps that `said` of them are resident.

        Returns the bytes that others lost by it.
        """
        self.version += 1
        share = self._share(tenant)
        share.pass_time(self.clock.now)
        if said is not None and share.said is None:
            self._begin_swapping(tenant, share)
        self.fixed += fixed - share.fixed
        share.fixed = fixed
        share.fresh = min(size, share.fresh + max(0, size - share.bytes))
        share.bytes = size
        if said is not None:
            share.hear(said)
        self._set_stuck(tenant, share)
        there = share.resident if said is None else share.there
        self._set_resident(tenant, share, min(there, size - share.fresh))
        self._count(share)
        return self.touch(tenant)[1] if running else self.squeeze()

    def set_room(self, room: int) -> None:
        """Tenants can have so many bytes together now."""
        self.version += 1
        self.room = room
        self.staying.note(room)
        self.squeeze()

    def forget(self, tenant: int) -> None:
        share = self.shares.get(tenant)
        if share is None:
            return
        self._place(tenant, share)
        self._set_resident(tenant, share, 0)
        self.total -= share.total
        self.fixed -= share.fixed
        self.stuck -= share.stuck
        self.staying.keep(tenant, 0)
        self.staying.need(tenant, None)
        self.staying.note(self.room)
        self.staying.affected.discard(tenant)
        self.lost.pop(tenant, None)
        self.shrunk.discard(tenant)
        del self.shares[tenant]

    def set_speed(self, speed: Speed, swaps: bool) -> None:
        """What is swapped, or else what is managed, moves so fast as far as is known."""
        self.version += 1
        if swaps:
            self.link = speed
        else:
            self.paging = speed

    def measured(self, tenant: int, moved: int, ns: int) -> None:
        """So many bytes of the tenant came in so many ns."""
        self.version += 1
        self._speed(tenant).learn(moved, ns)

    # -- questions -------------------------------------------------------------------

    def resident_of(self, tenant: int) -> int:
        share = self.shares.get(tenant)
        return share.resident if share else 0

    def said_of(self, tenant: int) -> int:
        """Bytes that it has said are there."""
        share = self.shares.get(tenant)
        return share.said or 0 if share else 0

    def there(self, tenant: int) -> int:
        """Bytes of the tenant that are on the device now, as far as is known."""
        share = self.shares.get(tenant, Share())
        return share.on_device - share.fixed

    def on_device(self, tenant: int) -> int:
        """Bytes of it that are on the device, those that cannot move too."""
        share = self.shares.get(tenant)
        return share.on_device if share else 0

    def memory_time(self, tenant: int, now: int) -> MemoryTime:
        """What it has had over time up to then, since it was last taken over. This changes
        nothing."""
        share = self.shares.get(tenant)
        if share is None:
            return MemoryTime(now)
        found = replace(share, time=replace(share.time))
        found.pass_time(now)
        return found.time

    def take_memory_time(self, tenant: int) -> None:
        """That was taken over up to now."""
        share = self.shares.get(tenant)
        if share is not None:
            share.pass_time(self.clock.now)
            share.time.taken()

    def missing(self, tenant: int) -> int:
        """Bytes that must come over the link before all of the tenant is resident."""
        share = self.shares.get(tenant)
        if share is None:
            return 0
        return max(0, min(share.bytes, self.capacity) - share.resident - share.fresh)

    def displaced(self, tenant: int) -> int:
        """Bytes that other tenants would lose if this one came in whole."""
        share = self.shares.get(tenant)
        if share is None:
            return min(self.resident, max(0, self.resident - self.capacity))
        others, capacity = self.resident - share.resident, self.capacity
        return min(others, max(0, others + min(share.bytes, capacity) - capacity))

    def handoff_ns(self, tenant: int) -> int:
        """What it costs to bring this tenant in: the slower of both directions, in ns."""
        share = self.shares.get(tenant)
        if share is None:
            return self.paging.ns(self.displaced(tenant))
        capacity = max(0, self.room - self.fixed - self.stuck)
        size, others = min(share.bytes, capacity), self.resident - share.resident
        missing, displaced = size - share.resident - share.fresh, others + size - capacity
        moved = max(missing, min(others, displaced))
        if moved <= 0:
            return 0
        return (self.paging if share.said is None else self.link).ns(moved)

    def leaving(self, tenant: int) -> int:
        """Bytes that it has been told to give up, and now could."""
        share = self.shares.get(tenant)
        return 0 if share is None or share.works or share.stuck else share.leaving

    def crowded_out(self, tenant: int) -> bool:
        """What others have and cannot be moved leaves no room for all that it has."""
        return self.staying.keeps_out(tenant, self.room)

    def keep_out(self, tenant: int) -> dict[int, int]:
        """Who keeps it out, and with how many bytes: the most first; empty where nobody does."""
        if not self.crowded_out(tenant):
            return {}
        others = [(other, size) for other, size in self.staying.of.items() if other != tenant]
        return dict(sorted(others, key=lambda other: -other[1]))

    # -- who works, who waits ----------------------------------------------------------

    def touch(self, tenant: int) -> tuple[int, int]:
        """The tenant works: it becomes resident. Returns (bytes in, bytes of others out)."""
        share = self._share(tenant)
        share.pass_time(self.clock.now)
        # What it was told to give up and has not, it keeps now.
        share.leaving = share.coming = 0
        share.stalled = False
        self._set_stuck(tenant, share)
        self.lost.pop(tenant, None)
        bytes_in, bytes_out = self.missing(tenant), self.displaced(tenant)
        self._place(tenant, share, works=True)
        self._set_resident(tenant, share, min(share.bytes - share.stuck, self.capacity))
        self._take(bytes_out)
        share.fresh = max(0, share.bytes - share.resident - share.stuck)
        return bytes_in, bytes_out

    def rest(self, tenant: int) -> None:
        """It does not work any more: of one that swaps, what it says is there is what is there."""
        share = self._share(tenant)
        self._place(tenant, share)
        if share.said is not None:
            self._set_resident(tenant, share, share.there)

    def wait(self, tenant: int, place: Place | None) -> None:
        """It has this place among those who wait; None: it does not wait any more."""
        share = self._share(tenant)
        if not share.works:
            self._place(tenant, share, place=place)

    def preload(self, tenant: int, displace: bool) -> tuple[int, int]:
        """One that swaps and waits shall bring in what there is room for; with `displace`, which
        is for the first in the queue, also what all others make room for who do not work.

        Returns (bytes in, bytes of others out).
        """
        share = self._share(tenant)
        if share.said is None or share.leaving or share.coming:
            return 0, 0
        share.pass_time(self.clock.now)
        free = max(0, self.capacity - self.resident)
        if displace:
            free += self.idle - share.resident
        share.coming = bytes_in = min(self.missing(tenant), free)
        self._set_resident(tenant, share, share.resident + bytes_in)
        bytes_out = max(0, self.resident - self.capacity) if bytes_in else 0
        self._take(bytes_out)
        return bytes_in, bytes_out

    # -- who is parked -----------------------------------------------------------------

    def leave(self, tenant: int) -> int:
        """All that it has there leaves, for nobody in particular. Returns the bytes."""
        share = self._share(tenant)
        share.pass_time(self.clock.now)
        share.parked, share.stalled, share.coming = True, False, 0
        self._set_stuck(tenant, share)
        left = 0
        if not share.stuck:
            left, share.leaving = share.resident, share.said or 0
            self.lost.pop(tenant, None)
            self._set_resident(tenant, share, 0)
        self._count(share)
        return left

    def count(self, tenant: int) -> None:
        """It is not parked any more."""
        share = self._share(tenant)
        share.pass_time(self.clock.now)
        share.parked = False
        self._count(share)

    def _count(self, share: Share) -> None:
        """What it has is in the total, unless it is parked and all has left."""
        away = share.parked and not (share.resident or share.leaving or share.stuck)
        size = 0 if away else share.bytes
        self.total += size - share.total
        share.total = size
        self.version += 1

    # -- who gives up what -------------------------------------------------------------

    def squeeze(self) -> int:
        """There may be less room than is resident: who does not work loses what is too much.

        Returns the bytes lost.
        """
        lost = min(self.resident - self.capacity, self.idle)
        if lost <= 0:
            return 0
        self._take(lost)
        return lost

    def take_lost(self) -> dict[int, int]:
        """What tenants who swap have to give up, by tenant, and is not yet asked for."""
        lost, self.lost = self.lost, {}
        return lost

    def freeze(self, tenant: int, frozen: bool) -> None:
        """Its processes cannot act, or can again: what it has there stays meanwhile."""
        share = self._share(tenant)
        share.frozen = frozen
        self._keep(tenant, share)

    def stall(self, tenant: int) -> None:
        """What it was told to give up does not leave: all that it has there stays, until
        some of it has left or it works again."""
        share = self._share(tenant)
        share.stalled = share.leaving > 0
        self._keep(tenant, share)

    def _keep(self, tenant: int, share: Share) -> None:
        self._set_stuck(tenant, share)
        if share.said is not None:
            self._set_resident(tenant, share, share.there)
        self.squeeze()

    def _set_stuck(self, tenant: int, share: Share) -> None:
        share.pass_time(self.clock.now)
        stuck = (share.said or 0) if share.frozen or share.stalled else 0
        self.stuck += stuck - share.stuck
        share.stuck = stuck
        self.staying.keep(tenant, share.fixed + stuck)
        if share.said is not None:
            self.staying.need(tenant, share.bytes - stuck)
        self.staying.note(self.room)

    def _take(self, size: int) -> None:
        """Others lose so many bytes, which is at most what they have."""
        while size > 0:
            loser = self._loser()
            share = self.shares[loser]
            lost = min(size, share.resident)
            self._set_resident(loser, share, share.resident - lost)
            size -= lost
            if share.place:
                self.shrunk.add(loser)
            if share.said is not None:
                share.leaving += lost
                self.lost[loser] = self.lost.get(loser, 0) + lost

    def _loser(self) -> int:
        if self.recent:
            return next(iter(self.recent))
        if self.awaited:
            return self.awaited.last()
        return next(iter(self.working))

    def _begin_swapping(self, tenant: int, share: Share) -> None:
        """It turns out that it moves its memory itself."""
        size = share.resident
        self._set_resident(tenant, share, 0)
        share.said = 0
        if share.place:
            self.line.add(share.place, tenant)
        self._set_resident(tenant, share, size)

    # -- keeping order -------------------------------------------------------------------

    def _speed(self, tenant: int) -> Speed:
        share = self.shares.get(tenant)
        return self.link if share is not None and share.said is not None else self.paging

    def _share(self, tenant: int) -> Share:
        share = self.shares.get(tenant)
        if share is None:
            share = self.shares[tenant] = Share(time=MemoryTime(self.clock.now))
        return share

    def _place(
        self, tenant: int, share: Share, works: bool = False, place: Place | None = None
    ) -> None:
        """It is the last in the order that it belongs to now."""
        size = share.resident
        share.pass_time(self.clock.now)
        self._set_resident(tenant, share, 0)
        if share.place:
            self.line.remove(share.place, tenant)
        share.works, share.place = works, place
        if place and share.said is not None:
            self.line.add(place, tenant)
        self._set_resident(tenant, share, size)

    def _set_resident(self, tenant: int, share: Share, size: int) -> None:
        if size == share.resident:
            return
        share.pass_time(self.clock.now)
        self.version += 1
        self.resident += size - share.resident
        if not share.works:
            self.idle += size - share.resident
        if share.place and share.said is not None:
            if size and not share.resident:
                self.awaited.add(share.place, tenant)
            elif share.resident and not size:
                self.awaited.remove(share.place, tenant)
        elif size:
            (self.working if share.works else self.recent)[tenant] = share
        else:
            (self.working if share.works else self.recent).pop(tenant, None)
        share.resident = size
