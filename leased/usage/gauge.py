"""Which tenants have held a device since its work was last measured, and for how long.

The driver says for a whole device how busy it was and what energy it took. That is divided among
those who had it meanwhile by what each has had of its lease time. If the driver says for whom the
device worked, lease time side by side is first divided by that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

PARTS = 1000  # of a weight: some of a tenant's work is not counted
LEAST_WEIGHT = PARTS  # of a tenant that was there


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

    @property
    def was_held(self) -> bool:
        """Whether anybody has held it since this was last taken."""
        return bool(self.since or self.had)

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


def weights_beside(
    found: Mapping[int, Held], parts: Iterable[WorkPart], worked: Mapping[int, int]
) -> dict[int, int]:
    """How much of each tenant's work was done side by side, as a weight in PARTS of the driver's.

    Of a tenant that also held the device alone only the sum of its work is known. It is taken to
    have worked at one pace. But the work of all side by side takes no longer than they were side by
    side; if it would, more of it is taken to have been done alone, as far as there was time for it.
    """
    likely: dict[int, int] = {}
    spare: dict[int, int] = {}  # what of that may have been done alone
    for number, held in found.items():
        work, alone = worked.get(number, 0), held.clock_ns - held.beside_ns
        least = max(0, work - alone)
        likely[number] = max(least, work * held.beside_ns // held.clock_ns if held.clock_ns else 0)
        spare[number] = likely[number] - least
    excess = sum(likely.values()) - sum(held.beside_lease_ns for held in found.values())
    if excess > 0 and (total := sum(spare.values())):
        for number, most in spare.items():
            likely[number] -= most * min(excess, total) // total
    weights = {}
    for part in parts:
        had, work = found.get(part.tenant), worked.get(part.tenant, 0)
        if had is not None and had.clock_ns:
            done, of = (likely[part.tenant], work) if work else (had.beside_ns, had.clock_ns)
            weights[part.tenant] = PARTS * part.weight * done // of
    return weights


def divided(found: Mapping[int, Held], known: Mapping[int, int]) -> dict[int, int]:
    """By how much each tenant's lease time changes when time side by side is divided by the work
    of that time instead of evenly. known: see weights_beside. The changes add up to 0, and no
    tenant gets more than the time by the clock.

    If none of the tenants side by side has worked nothing changes. Otherwise each has a weight of
    at least one percent, since the driver's samples cannot tell less than a percent from nothing.
    """
    beside = {number: held for number, held in found.items() if held.beside_lease_ns}
    if len(beside) < 2 or not any(known.get(number) for number in beside):
        return {}
    weights = {number: max(LEAST_WEIGHT, known.get(number, 0)) for number in beside}
    left = sum(held.beside_lease_ns for held in beside.values())
    given: dict[int, int] = {}
    # A tenant that would get more than the time by the clock gets that, and the others the rest.
    while weights:
        total = sum(weights.values())
        full = [n for n, weight in weights.items() if left * weight > beside[n].beside_ns * total]
        if not full:
            break
        for number in full:
            given[number] = min(left, beside[number].beside_ns)
            left -= given[number]
            del weights[number]
    for number in list(weights):
        given[number] = left * weights[number] // sum(weights.values())
        left -= given[number]
        del weights[number]
    return {number: given[number] - held.beside_lease_ns for number, held in beside.items()}
