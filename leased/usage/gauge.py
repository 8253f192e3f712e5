"""Which tenants have held a device since its work was last measured, and for how long.

The driver says for a whole device how busy it was and what energy it took. That is divided among
those who had it meanwhile by what each has had of its lease time; see leased/core/work.py.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class WorkPart:
    """How much the device worked for a tenant, in proportion to the weights of others."""

    tenant: int
    weight: int


@dataclass
class Held:
    """lease_ns: divided among those who held at once. clock_ns: not divided. beside_ns: of that,
    what it held while somebody else held it too."""

    lease_ns: int = 0
    clock_ns: int = 0
    beside_ns: int = 0

    @property
    def beside_lease_ns(self) -> int:
        """The part of its lease time in which others held too."""
        return max(0, self.lease_ns - (self.clock_ns - self.beside_ns))


# What the device's clock shows (each and shared, see LeaseClock), and when.
Reading = tuple[int, int, int]


@dataclass
class Gauge:
    """Which tenants have held one device, and for how long."""

    since: dict[int, Reading] = field(default_factory=dict)  # of each holder
    had: dict[int, Held] = field(default_factory=dict)

    def begin(self, tenant: int, reading: Reading) -> None:
        """The tenant holds the device from now on."""
        self.since[tenant] = reading

    def end(self, tenant: int, reading: Reading) -> None:
        """The tenant no longer holds the device."""
        since, held = self.since.pop(tenant), self.had.get(tenant)
        if held is None:
            held = self.had[tenant] = Held()
        held.lease_ns += reading[0] - since[0]
        held.beside_ns += reading[1] - since[1]
        held.clock_ns += reading[2] - since[2]

    def forget(self, tenant: int) -> None:
        """The tenant is closed; nobody gets its part of what will be measured."""
        self.had.pop(tenant, None)

    def take(self, reading: Reading) -> dict[int, Held]:
        """What each tenant has had of the device since this was last asked."""
        holders = list(self.since)
        for tenant in holders:
            self.end(tenant, reading)
        self.since = dict.fromkeys(holders, reading)
        found, self.had = self.had, {}
        return found
