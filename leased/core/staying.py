"""Memory that cannot be moved from a device, and the tenants it leaves no room for. In bytes."""

from __future__ import annotations

from leased.core.line import Line

NO_LIMIT = 1 << 64


class Staying:
    """of: the memory that stays, by tenant. affected: tenants that may have room now and had none
    before, or the reverse."""

    def __init__(self) -> None:
        self.of: dict[int, int] = {}
        self.total = 0
        self.affected: set[int] = set()
        self._needs: dict[int, int] = {}
        self._sizes: Line[int] = Line()  # the same, by size
        self._most = 0  # as last noted

    def keep(self, tenant: int, size: int) -> None:
        """So much of the tenant's memory stays on the device, whoever needs room."""
        before = self.of.get(tenant, 0)
        if size == before:
            return
        if len(self.of) == 1:  # a tenant is not kept out by its own memory
            self.affected.update(self.of)
        self.total += size - before
        self.of[tenant] = size
        if not size:
            del self.of[tenant]
        if len(self.of) == 1:
            self.affected.update(self.of)
        self.affected.add(tenant)

    def need(self, tenant: int, size: int | None) -> None:
        """The tenant needs this much there to work; None: it is closed, or needs nothing there."""
        before = self._needs.get(tenant)
        if size == before:
            return
        if before is not None:
            self._sizes.remove(before, tenant)
            del self._needs[tenant]
        if size is not None:
            self._sizes.add(size, tenant)
            self._needs[tenant] = size
            self.affected.add(tenant)

    def __len__(self) -> int:
        """How many tenants need some of their memory there to work."""
        return len(self._needs)

    def most(self, room: int) -> int:
        """The most that a tenant may need without being kept out. It is a hundredth more than the
        room, since about as much is kept free. If no memory stays there is no such limit."""
        return room + room // 100 - self.total if self.total else NO_LIMIT

    def keeps_out(self, tenant: int, room: int) -> bool:
        """Whether memory of others that stays leaves no room for what the tenant needs."""
        need = self._needs.get(tenant)
        others = self.total - self.of.get(tenant, 0)
        return need is not None and others > 0 and need > self.most(room)

    def note(self, room: int) -> None:
        """The room, or the memory that stays, has changed: find the tenants for which that makes a
        difference."""
        before, self._most = self._most, self.most(room)
        if before != self._most:
            low, high = sorted((before, self._most))
            self.affected.update(self._sizes.between(low, high))
