"""How many bytes of each tenant are in a device's memory, as a model: pure, no NVML.

The driver does not say what is resident, so this follows what must happen: a
tenant that computes brings in what it lacks, and least recently granted
tenants lose as much as is lacking of room. From it follow what a handoff
moves and, with the speed of the link, what it costs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

GIB = 1 << 30
FIRST_GUESS_GIB_S = 10.0
MEASURE_FROM_BYTES = 16 << 20
# No link is faster; a prefetch that was had nothing to move.
FASTEST_BYTES_S = 512 * GIB


@dataclass
class Share:
    """One tenant on one device, in bytes. fresh: allocated, never yet touched."""

    bytes: int = 0
    resident: int = 0
    fresh: int = 0
    used: int = 0  # stamp of the last grant


@dataclass
class Residency:
    """One device. room: bytes that tenants' allocations can have together, fixed ones too."""

    room: int
    link_bytes_s: float = FIRST_GUESS_GIB_S * GIB
    shares: dict[int, Share] = field(default_factory=dict)
    fixed: dict[int, int] = field(default_factory=dict)
    stamp: int = 0

    @property
    def capacity(self) -> int:
        """Bytes that tenants can have resident together, beside what cannot be moved."""
        return max(0, self.room - sum(self.fixed.values()))

    def total(self) -> int:
        """Movable bytes that all tenants have, resident or not."""
        return sum(share.bytes for share in self.shares.values())

    def fits(self) -> bool:
        return self.total() <= self.capacity

    def set_bytes(self, tenant: int, size: int, running: bool) -> int:
        """A tenant now has `size` bytes; returns the bytes that others lost by it."""
        share = self.shares.setdefault(tenant, Share())
        grown = size - share.bytes
        share.bytes = size
        if grown > 0:
            share.fresh += grown
        share.fresh = min(share.fresh, size)
        share.resident = min(share.resident, size - share.fresh)
        return self.touch(tenant)[1] if running else 0

    def missing(self, tenant: int) -> int:
        """Bytes that must come over the link before all of the tenant is resident."""
        share = self.shares.get(tenant, Share())
        return max(0, min(share.bytes, self.capacity) - share.resident - share.fresh)

    def displaced(self, tenant: int) -> int:
        """Bytes that other tenants would lose if this one came in whole."""
        share = self.shares.get(tenant, Share())
        others = sum(s.resident for t, s in self.shares.items() if t != tenant)
        return max(0, others + min(share.bytes, self.capacity) - self.capacity)

    def handoff_ns(self, tenant: int) -> int:
        """What it costs to bring this tenant in: the slower of both directions, in ns."""
        moved = max(self.missing(tenant), self.displaced(tenant))
        return int(moved / self.link_bytes_s * 1e9)

    def touch(self, tenant: int) -> tuple[int, int]:
        """The tenant works: it becomes resident. Returns (bytes in, bytes of others out)."""
        self.stamp += 1
        share = self.shares.setdefault(tenant, Share())
        share.used = self.stamp
        bytes_in, bytes_out = self.missing(tenant), self.displaced(tenant)
        share.resident = min(share.bytes, self.capacity)
        share.fresh = share.bytes - share.resident
        left = bytes_out
        for other in sorted(self.shares.values(), key=lambda s: s.used):
            if other is not share:
                lost = min(left, other.resident)
                other.resident -= lost
                left -= lost
        return bytes_in, bytes_out

    def forget(self, tenant: int) -> None:
        self.shares.pop(tenant, None)
        self.fixed.pop(tenant, None)

    def measured(self, moved: int, ns: int) -> None:
        """A prefetch moved so many bytes in so many ns: follow the link's speed slowly."""
        if moved < MEASURE_FROM_BYTES or ns <= 0 or moved / ns * 1e9 > FASTEST_BYTES_S:
            return
        self.link_bytes_s += (moved / ns * 1e9 - self.link_bytes_s) * 0.25
