"""Lease time of one device, added up as it passes: the one place where that is done."""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass
class LeaseClock:
    """Sums of ns until `at`; who wants to know what somebody had keeps what it showed before.

    holders: how many hold the device; locked, alone: of those, how many heed a lock, and how many
    run beside no other that does. wanting: how many of those that heed locks hold it or want it.

    each: what each holder has had since the start, divided among those that held at once. shared:
    the time in which several held it. The others are about those that heed locks: leased: the time
    in which any held it. held: what each holder has had. even: what each would have had that wants
    it. Remainders are carried over, so no sum depends on how often it was brought up to date.
    """

    at: int
    holders: int = 0
    locked: int = 0
    alone: int = 0
    wanting: int = 0
    each: int = 0
    each_rest: int = 0
    shared: int = 0
    leased: int = 0
    held: int = 0
    held_rest: int = 0
    even: int = 0
    even_rest: int = 0

    def advance(self, now: int) -> None:
        """As many as now have held and wanted it until now."""
        passed = now - self.at
        if passed <= 0:
            return
        self.at = now
        holders, locked = self.holders, self.locked
        if not holders:
            return
        if holders == 1:
            more = passed + self.each_rest
            self.each_rest = 0
        else:
            more, self.each_rest = divmod(passed + self.each_rest, holders)
            self.shared += passed
        self.each += more
        if locked:
            self.leased += passed
            more, self.held_rest = divmod(passed + self.held_rest, locked)
            self.held += more
            more, self.even_rest = divmod(passed + self.even_rest, self.wanting or locked)
            self.even += more

    def count(self, now: int, more: int, heeds: int) -> None:
        """So many more hold it from now on, which heed this."""
        if now > self.at:
            self.advance(now)
        self.holders += more
        if heeds:
            self.locked += more
            if heeds > 1:
                self.alone += more

    def later(self, now: int) -> LeaseClock:
        """What it would show then. This changes nothing."""
        found = replace(self)
        found.advance(now)
        return found

    def reading(self, now: int) -> tuple[int, int, int]:
        """each and shared at that time, if nothing changes until then, and the time. This changes
        nothing."""
        passed = now - self.at
        if passed <= 0 or not self.holders:
            return self.each, self.shared, now
        each = self.each + (passed + self.each_rest) // self.holders
        return each, self.shared + (passed if self.holders > 1 else 0), now
