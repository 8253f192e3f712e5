"""Shares of devices' time that tenants have: what they request of it at least, and at most.

What the tenants of a device request together is at most 1. A tenant that requests more than is
left waits, and gets no lease, until enough of the others have ended; who came first is first,
also before one whose smaller request there would be room for.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from leased.core.state import Tenant

MILLION = 1_000_000
ROUNDED = 10  # millionths by which a sum of parts may be above 1, as decimals are rounded


class Shares:
    """of: the gangs of tenants with a share. waiting: those whose requests do not count yet, as
    they came."""

    def __init__(self) -> None:
        self.of: dict[int, tuple[str, ...]] = {}
        self.waiting: dict[int, Tenant] = {}
        self._requested: dict[str, int] = {}  # by device, in millionths
        # By device: how many tenants with a share are there, and who waits, as they came.
        self._there: dict[str, int] = {}
        self._line: dict[str, dict[int, Tenant]] = {}
        self._freed: set[str] = set()  # devices on which somebody who waits may go on

    def join(self, tenant: Tenant) -> None:
        """The tenant is here, with its gang."""
        self.of[tenant.id] = tenant.gang
        for uuid in tenant.gang:
            self._there[uuid] = self._there.get(uuid, 0) + 1
        if self._fits(tenant):
            self._add(tenant.gang, _millionths(tenant))
        else:
            self.waiting[tenant.id] = tenant
            for uuid in tenant.gang:
                self._line.setdefault(uuid, {})[tenant.id] = tenant

    def leave(self, tenant: Tenant) -> None:
        """The tenant is over, or gets another gang."""
        gang = self.of.pop(tenant.id)
        for uuid in gang:
            self._there[uuid] -= 1
            if not self._there[uuid]:
                del self._there[uuid]
        if tenant.id in self.waiting:
            self._wait_no_more(tenant)
        else:
            self._add(gang, -_millionths(tenant))
            self._freed.update(gang)

    def let_in(self) -> list[Tenant]:
        """The requests of these waiting tenants count from now on."""
        if not self._freed:
            return []
        before, found = list(self.waiting.values()), set[int]()
        while self._freed:
            lines = [self._line[uuid] for uuid in self._freed if uuid in self._line]
            heads = {tenant.id: tenant for line in lines for tenant in _first(line)}
            self._freed.clear()
            for tenant in heads.values():
                if not self._is_behind(tenant) and self._is_left(tenant):
                    self._wait_no_more(tenant)
                    self._add(tenant.gang, _millionths(tenant))
                    found.add(tenant.id)
        return [tenant for tenant in before if tenant.id in found] if found else []

    def _wait_no_more(self, tenant: Tenant) -> None:
        del self.waiting[tenant.id]
        for uuid in tenant.gang:
            line = self._line[uuid]
            del line[tenant.id]
            if not line:
                del self._line[uuid]
        self._freed.update(tenant.gang)

    def _is_behind(self, tenant: Tenant) -> bool:
        """Others wait for one of its devices that came before it."""
        lines = [self._line[uuid] for uuid in tenant.gang if uuid in self._line]
        return any(first is not tenant for line in lines for first in _first(line))

    def _is_left(self, tenant: Tenant) -> bool:
        """There is still as much of its devices' time as it requests."""
        most = max((self._requested.get(uuid, 0) for uuid in tenant.gang), default=0)
        return _millionths(tenant) <= MILLION - most + ROUNDED

    def _fits(self, tenant: Tenant) -> bool:
        """The request of one that comes now may count at once."""
        return not tenant.request or (not self._is_behind(tenant) and self._is_left(tenant))

    def devices(self) -> Iterable[str]:
        """Those that tenants with a share have."""
        return self._there

    def requested(self, device: str) -> float:
        """The part of the device's time that its tenants request together."""
        return self._requested.get(device, 0) / MILLION

    def lacks(self, tenant: Tenant) -> str | None:
        """Why a tenant that comes now would have to wait for its share, for its user to read; None:
        it would not."""
        if self._fits(tenant):
            return None
        return self._words(tenant)

    def why_waiting(self, tenant: Tenant) -> str | None:
        """The same of one that is here; None: it does not wait."""
        return self._words(tenant) if tenant.id in self.waiting else None

    def _words(self, tenant: Tenant) -> str:
        if self._is_left(tenant):
            return f"request:{tenant.request:g} comes behind other jobs that wait for their share"
        most = max((self._requested.get(uuid, 0) for uuid in tenant.gang), default=0)
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


def _first(line: dict[int, Tenant]) -> Iterable[Tenant]:
    """Who came first of those who wait."""
    return islice(line.values(), 1)


def _millionths(tenant: Tenant) -> int:
    return round(tenant.request * MILLION)
