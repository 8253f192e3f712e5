"""Shares of devices' time that tenants have: what they request of it at least, and at most.

What the tenants of a device request together is at most 1. A tenant that requests more than is
left waits, and gets no lease, until enough of the others have ended; who came first is first,
also before one whose smaller request there would be room for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from leased.core.state import Tenant

MILLION = 1_000_000
ROUNDED = 10  # millionths by which a sum of parts may be above 1, as decimals are rounded


class Shares:
    """of: the gangs of tenants with a share. changed: devices may need another policy for them, or
    waiting tenants may go on. waiting: tenants whose requests do not count yet, as they came."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[str, ...]] = {}
        self.waiting: dict[int, Tenant] = {}
        self.changed = False
        self._requested: dict[str, int] = {}  # by device, in millionths

    def join(self, tenant: Tenant) -> None:
        """The tenant is here, with its gang."""
        if tenant.has_share:
            self.of[tenant.id] = tenant.gang
            self.changed = True
            if self._fits(tenant, self.claimed()):
                self._add(tenant.gang, _millionths(tenant))
            else:
                self.waiting[tenant.id] = tenant

    def leave(self, tenant: Tenant) -> None:
        """The tenant is over, or gets another gang."""
        gang = self.of.pop(tenant.id, None)
        if gang is None:
            return
        self.changed = True
        if self.waiting.pop(tenant.id, None) is None:
            self._add(gang, -_millionths(tenant))

    def let_in(self) -> list[Tenant]:
        """The requests of these waiting tenants count from now on."""
        found: list[Tenant] = []
        claimed: set[str] = set()
        for tenant in list(self.waiting.values()):
            if self._fits(tenant, claimed):
                del self.waiting[tenant.id]
                self._add(tenant.gang, _millionths(tenant))
                found.append(tenant)
            else:
                claimed.update(tenant.gang)
        return found

    def claimed(self) -> set[str]:
        """The devices for which tenants wait."""
        return {uuid for tenant in self.waiting.values() for uuid in tenant.gang}

    def _fits(self, tenant: Tenant, claimed: Collection[str]) -> bool:
        """Its request may count now, if tenants before it wait for these devices."""
        if not tenant.request:
            return True
        most = max((self._requested.get(uuid, 0) for uuid in tenant.gang), default=0)
        behind = any(uuid in claimed for uuid in tenant.gang)
        return not behind and _millionths(tenant) <= MILLION - most + ROUNDED

    def devices(self) -> Iterable[str]:
        """Those that tenants with a share have."""
        return {uuid for gang in self.of.values() for uuid in gang}

    def requested(self, device: str) -> float:
        """The part of the device's time that its tenants request together."""
        return self._requested.get(device, 0) / MILLION

    def lacks(self, tenant: Tenant) -> str | None:
        """Why a tenant that comes now would have to wait for its share, for its user to read; None:
        it would not."""
        if self._fits(tenant, self.claimed()):
            return None
        return self._words(tenant)

    def why_waiting(self, tenant: Tenant) -> str | None:
        """The same of one that is here; None: it does not wait."""
        return self._words(tenant) if tenant.id in self.waiting else None

    def _words(self, tenant: Tenant) -> str:
        most = max((self._requested.get(uuid, 0) for uuid in tenant.gang), default=0)
        if _millionths(tenant) <= MILLION - most + ROUNDED:
            return f"request:{tenant.request:g} comes behind other jobs that wait for their share"
        left = max(0, MILLION - most) / MILLION
        return (
            f"request:{tenant.request:g} is more than is left of its GPU, of which other jobs "
            f"request {most / MILLION:g} already, so {left:g} is left"
        )

    def _add(self, gang: tuple[str, ...], amount: int) -> None:
        for uuid in gang:
            total = self._requested.pop(uuid, 0) + amount
            if total:
                self._requested[uuid] = total


def _millionths(tenant: Tenant) -> int:
    return round(tenant.request * MILLION)
