"""How much memory a tenant has had on a device and for how long, as sums over time."""

from __future__ import annotations

from dataclasses import dataclass

from leased.usage.usage import KIB_MS, Usage


@dataclass
class MemoryTime:
    """What has been added up since it was last taken into a usage.

    wanted_at: until when `wanted` has been added up, and there_at: all else; in ns. wanted,
    resident: bytes times ns. idle_ns: for how long some of it was resident while the tenant neither
    held a lease nor stood in the line. peak: the most resident bytes at once.
    """

    wanted_at: int = 0
    there_at: int = 0
    wanted: int = 0
    resident: int = 0
    idle_ns: int = 0
    peak: int = 0

    @classmethod
    def since(cls, now: int) -> MemoryTime:
        """Nothing, from now on."""
        return cls(now, now)

    def copy(self) -> MemoryTime:
        return MemoryTime(
            *(self.wanted_at, self.there_at, self.wanted, self.resident, self.idle_ns, self.peak)
        )

    def advance_wanted(self, now: int, wanted: int) -> None:
        """Until now so many bytes were wanted."""
        if now > self.wanted_at:
            self.wanted += wanted * (now - self.wanted_at)
            self.wanted_at = now

    def advance_there(self, now: int, resident: int, idle: bool) -> None:
        """Until now so many bytes were resident. Amounts that lasted for no time do not count."""
        passed = now - self.there_at
        if passed <= 0:
            return
        self.there_at = now
        if resident:
            self.resident += resident * passed
            self.peak = self.peak if self.peak > resident else resident
            if idle:
                self.idle_ns += passed

    def add_to(self, usage: Usage) -> None:
        usage.wanted_kib_ms += self.wanted // KIB_MS
        usage.resident_kib_ms += self.resident // KIB_MS
        usage.idle_resident_ns += self.idle_ns
        usage.peak_resident_bytes = max(usage.peak_resident_bytes, self.peak)

    def taken(self) -> None:
        """What was added up is in the tenant's usage now; a rest of less than a unit is kept for
        the next time."""
        self.wanted %= KIB_MS
        self.resident %= KIB_MS
        self.idle_ns = 0
