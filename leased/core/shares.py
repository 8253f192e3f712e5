"""Shares of devices' time that tenants have: what they request of it at least, and at most.

What the tenants of a device request together is at most 1. A tenant that requests more than is
left waits, and gets no lease, until enough of the others have ended; who came first is first,
also before one whose smaller request there would be room for.
"""

from __future__ import annotations

from leased.core.state import Tenant

MILLION = 1_000_000
ROUNDED = 10  # millionths by which a sum of parts may be above 1, as decimals are rounded


class Shares:
    """of: tenants with a share. waiting: those whose requests do not count yet, as they came."""

    def __init__(self) -> None:
        self.of: dict[int, Tenant] = {}
        self.waiting: dict[int, Tenant] = {}

    def join(self, tenant: Tenant) -> None:
        """The tenant is here, with its gang."""
        if not self._fits(tenant):
            self.waiting[tenant.id] = tenant
        self.of[tenant.id] = tenant

    def leave(self, tenant: Tenant) -> None:
        """The tenant is over, or gets another gang."""
        del self.of[tenant.id]
        self.waiting.pop(tenant.id, None)

    def let_in(self) -> list[Tenant]:
        """The requests of these waiting tenants count from now on."""
        found = []
        for tenant in list(self.waiting.values()):
            if not self._is_behind(tenant) and self._is_left(tenant):
                del self.waiting[tenant.id]
                found.append(tenant)
        return found

    def _is_behind(self, tenant: Tenant) -> bool:
        """Others wait for one of its devices that came before it."""
        for other in self.waiting.values():
            if other is tenant:
                return False
            if not set(tenant.gang).isdisjoint(other.gang):
                return True
        return False

    def _is_left(self, tenant: Tenant) -> bool:
        """There is still as much of its devices' time as it requests."""
        return _millionths(tenant) <= MILLION - self._most(tenant) + ROUNDED

    def _fits(self, tenant: Tenant) -> bool:
        """The request of one that comes now may count at once."""
        return not tenant.request or (not self._is_behind(tenant) and self._is_left(tenant))

    def _most(self, tenant: Tenant) -> int:
        """What is requested of the device of its gang of which the most is, in millionths."""
        return max(self._requested(uuid) for uuid in tenant.gang)

    def _requested(self, device: str) -> int:
        """In millionths."""
        counted = [t for t in self.of.values() if device in t.gang and t.id not in self.waiting]
        return sum(_millionths(tenant) for tenant in counted)

    def devices(self) -> set[str]:
        """Those that tenants with a share have."""
        return {uuid for tenant in self.of.values() for uuid in tenant.gang}

    def requested(self, device: str) -> float:
        """The part of the device's time that its tenants request together."""
        return self._requested(device) / MILLION

    def lacks(self, tenant: Tenant) -> str | None:
        """Why a tenant that comes now would have to wait for its share, for its user to read; None:
        it would not."""
        return None if self._fits(tenant) else self._words(tenant)

    def why_waiting(self, tenant: Tenant) -> str | None:
        """The same of one that is here; None: it does not wait."""
        return self._words(tenant) if tenant.id in self.waiting else None

    def _words(self, tenant: Tenant) -> str:
        if self._is_left(tenant):
            return f"request:{tenant.request:g} comes behind other jobs that wait for their share"
        most = self._most(tenant)
        left = max(0, MILLION - most) / MILLION
        return (
            f"request:{tenant.request:g} is more than is left of its GPU, of which other jobs "
            f"request {most / MILLION:g} already, so {left:g} is left"
        )


def _millionths(tenant: Tenant) -> int:
    return round(tenant.request * MILLION)
