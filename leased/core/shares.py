"""Shares of devices' time that tenants have: what they request of it at least, and at most."""

from __future__ import annotations

from collections.abc import Iterable

from leased.core.state import Tenant

MILLION = 1_000_000
ROUNDED = 10  # millionths by which a sum of parts may be above 1, as decimals are rounded


class Shares:
    """of: the gangs of tenants with a share. changed: devices may need another policy for them."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[str, ...]] = {}
        self.changed = False
        self._requested: dict[str, int] = {}  # by device, in millionths

    def join(self, tenant: Tenant) -> None:
        """The tenant is here, with its gang."""
        if tenant.has_share:
            self.of[tenant.id] = tenant.gang
            self.changed = True
            self._add(tenant.gang, _millionths(tenant))

    def leave(self, tenant: Tenant) -> None:
        """The tenant is over, or gets another gang."""
        gang = self.of.pop(tenant.id, None)
        if gang is not None:
            self.changed = True
            self._add(gang, -_millionths(tenant))

    def devices(self) -> Iterable[str]:
        """Those that tenants with a share have."""
        return {uuid for gang in self.of.values() for uuid in gang}

    def requested(self, device: str) -> float:
        """The part of the device's time that its tenants request together."""
        return self._requested.get(device, 0) / MILLION

    def refusal(self, tenant: Tenant) -> str | None:
        """Why what it requests is too much, for its user to read; None: it is not."""
        most = max((self._requested.get(uuid, 0) for uuid in tenant.gang), default=0)
        left = MILLION - most
        if not tenant.request or _millionths(tenant) <= left + ROUNDED:
            return None
        return (
            f"request:{tenant.request:g} is more than is left of its GPU, of which other jobs "
            f"request {most / MILLION:g} already, so {max(0, left) / MILLION:g} is left; "
            "request less, or submit the job again when they have ended"
        )

    def _add(self, gang: tuple[str, ...], amount: int) -> None:
        for uuid in gang:
            total = self._requested.pop(uuid, 0) + amount
            if total:
                self._requested[uuid] = total


def _millionths(tenant: Tenant) -> int:
    return round(tenant.request * MILLION)
