"""Which tenants have held a device since its work was last measured, and for how long.

The driver says for a whole device how busy it was and what energy it took. That is divided among
those who had it meanwhile by what each has had of its lease time.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Held:
    """lease_ns: divided among those who held at once. clock_ns: not divided."""

    lease_ns: int = 0
    clock_ns: int = 0


@dataclass
class Gauge:
    """Of one device. meter: the value of Meter.each at the last measurement."""

    since: dict[int, tuple[int, int]] = field(default_factory=dict)  # (meter, now) of each holder
    had: dict[int, Held] = field(default_factory=dict)

    def begin(self, tenant: int, meter: int, now: int) -> None:
        """It holds the device from now on."""
        self.since[tenant] = meter, now

    def end(self, tenant: int, meter: int, now: int) -> None:
        """It does not hold the device any more."""
        before, began = self.since.pop(tenant)
        held = self.had.setdefault(tenant, Held())
        held.lease_ns += meter - before
        held.clock_ns += now - began

    def forget(self, tenant: int) -> None:
        """The tenant is closed; nobody gets its part of what will be measured."""
        self.had.pop(tenant, None)

    def take(self, meter: int, now: int) -> dict[int, Held]:
        """What each tenant has had of the device since this was last asked."""
        for tenant in list(self.since):
            self.end(tenant, meter, now)
            self.begin(tenant, meter, now)
        found, self.had = self.had, {}
        return found
