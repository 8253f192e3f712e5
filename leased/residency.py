"""How many bytes of each tenant are in a device's memory, as a model: pure, no NVML.

The driver does not say what is resident, so this follows what must happen: a
tenant that computes brings in what it lacks, and least recently granted
tenants lose as much as is lacking of room. From it follow what a handoff
moves and, with the speed of the link, what it costs. Sums are kept, not
computed: no operation looks at tenants that it does not change.

Tenants that swap say what they have there, and must be told what to give up
(`lost`): until it has left it counts as gone already, so that no byte is asked
for twice.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

GIB = 1 << 30
FIRST_GUESS_GIB_S = 10.0
MEASURE_FROM_BYTES = 16 << 20
# No link is faster; a prefetch that was had nothing to move.
FASTEST_BYTES_S = 512 * GIB


@dataclass
class Share:
    """One tenant on one device, in bytes. fresh: allocated, never yet touched.

    said: of a tenant that swaps, what it says is there, else None; leaving: of
    that, what it was told to give up and has not yet.
    """

    bytes: int = 0
    resident: int = 0
    fresh: int = 0
    fixed: int = 0  # more, which cannot be moved
    said: int | None = None
    leaving: int = 0

    def hear(self, said: int) -> None:
        """It says that so much is there now; what is less than before has left."""
        self.leaving = max(0, self.leaving - max(0, (self.said or 0) - said))
        self.said = said
        self.fresh = min(self.fresh, max(0, self.bytes - said))


@dataclass
class Residency:
    """One device. room: bytes that tenants' allocations can have together, fixed ones too.

    total, fixed: movable and fixed bytes that all tenants have, resident or not.
    """

    room: int
    link_bytes_s: float = FIRST_GUESS_GIB_S * GIB
    shares: dict[int, Share] = field(default_factory=dict)
    # Those with resident bytes, the least recently granted first.
    recent: OrderedDict[int, Share] = field(default_factory=OrderedDict)
    total: int = 0
    fixed: int = 0
    resident: int = 0
    # Bytes that tenants who swap have to give up, since last asked for.
    lost: dict[int, int] = field(default_factory=dict)

    @property
    def capacity(self) -> int:
        """Bytes that tenants can have resident together, beside what cannot be moved."""
        return max(0, self.room - self.fixed)

    def fits(self) -> bool:
        return self.total <= self.capacity

    def set_bytes(
        self, tenant: int, size: int, running: bool, fixed: int = 0, said: int | None = None
    ) -> int:
        """A tenant now has `size` bytes, and says so if it swaps that `said` of them are resident.

        Returns the bytes that others lost by it.
        """
        share = self._share(tenant)
        self.total += size - share.bytes
        self.fixed += fixed - share.fixed
        share.fixed = fixed
        share.fresh = min(size, share.fresh + max(0, size - share.bytes))
        share.bytes = size
        if said is not None:
            share.hear(said)
            self.rest(tenant)
        self._set_resident(tenant, share, min(share.resident, size - share.fresh))
        return self.touch(tenant)[1] if running else 0

    def missing(self, tenant: int) -> int:
        """Bytes that must come over the link before all of the tenant is resident."""
        share = self.shares.get(tenant, Share())
        return max(0, min(share.bytes, self.capacity) - share.resident - share.fresh)

    def displaced(self, tenant: int) -> int:
        """Bytes that other tenants would lose if this one came in whole."""
        share = self.shares.get(tenant, Share())
        others = self.resident - share.resident
        return min(others, max(0, others + min(share.bytes, self.capacity) - self.capacity))

    def handoff_ns(self, tenant: int) -> int:
        """What it costs to bring this tenant in: the slower of both directions, in ns."""
        moved = max(self.missing(tenant), self.displaced(tenant))
        return int(moved / self.link_bytes_s * 1e9)

    def touch(self, tenant: int) -> tuple[int, int]:
        """The tenant works: it becomes resident. Returns (bytes in, bytes of others out)."""
        share = self._share(tenant)
        share.leaving = 0  # what it was told to give up and has not, it keeps now
        self.lost.pop(tenant, None)
        bytes_in, bytes_out = self.missing(tenant), self.displaced(tenant)
        self._set_resident(tenant, share, min(share.bytes, self.capacity))
        if share.resident:
            self.recent.move_to_end(tenant)
        left = bytes_out
        while left > 0:  # at most what the others have
            first, other = next(iter(self.recent.items()))
            lost = min(left, other.resident)
            self._set_resident(first, other, other.resident - lost)
            left -= lost
            if other.said is not None:
                other.leaving += lost
                self.lost[first] = self.lost.get(first, 0) + lost
        share.fresh = share.bytes - share.resident
        return bytes_in, bytes_out

    def rest(self, tenant: int) -> None:
        """It does not work any more: of one that swaps, what it says is there is what is there."""
        share = self._share(tenant)
        if share.said is not None:
            self._set_resident(tenant, share, max(0, share.said - share.leaving))

    def take_lost(self) -> dict[int, int]:
        """What tenants who swap have to give up, by tenant, and is not yet asked for."""
        lost, self.lost = self.lost, {}
        return lost

    def forget(self, tenant: int) -> None:
        share = self.shares.pop(tenant, None)
        if share is not None:
            self.total -= share.bytes
            self.fixed -= share.fixed
            self._set_resident(tenant, share, 0)

    def measured(self, moved: int, ns: int) -> None:
        """A prefetch moved so many bytes in so many ns: follow the link's speed slowly."""
        if moved < MEASURE_FROM_BYTES or ns <= 0 or moved / ns * 1e9 > FASTEST_BYTES_S:
            return
        self.link_bytes_s += (moved / ns * 1e9 - self.link_bytes_s) * 0.25

    def _share(self, tenant: int) -> Share:
        share = self.shares.get(tenant)
        if share is None:
            share = self.shares[tenant] = Share()
        return share

    def _set_resident(self, tenant: int, share: Share, size: int) -> None:
        self.resident += size - share.resident
        share.resident = size
        if size:
            self.recent[tenant] = share
        else:
            self.recent.pop(tenant, None)
