"""Lease time of a device, divided among its holders."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Meter:
    """Lease time of one device: what each of its holders has had since it started, in ns."""

    at: int = 0
    each: int = 0  # divided among those who hold at once
    shared: int = 0

    def advance(self, now: int, holders: int) -> tuple[int, int]:
        """Run up to now, when others begin or cease to hold. Returns what it shows."""
        passed = now - self.at
        if passed:
            self.at = now
            if holders:
                self.each += passed // holders
                if holders > 1:
                    self.shared += passed
        return self.each, self.shared

    def reading(self, now: int, holders: int) -> tuple[int, int]:
        """each and shared at that time, if so many have held since it was last advanced."""
        passed = now - self.at
        each = self.each + passed // holders if holders else self.each
        return each, self.shared + passed if holders > 1 else self.shared
