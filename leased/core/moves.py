"""Tells tenants to evict and to restore memory, apart from what grants say.

A tenant that is told to evict memory is watched: what has not left counts as resident, and if
nothing leaves for a while, all of it counts as staying.
"""

from __future__ import annotations

from collections.abc import Callable

from leased.core.actions import Effects, Evict, Preload, Restore
from leased.core.deadlines import Deadlines
from leased.core.rules import MOVE_PATIENCE_NS, Rules
from leased.core.state import ALONE, Device, Tenant

LOOK_AHEAD = 32  # waiters at the front of the line that may bring in what there is room for


class Moves:
    """See Residency for the amounts. late: called when memory should have left."""

    def __init__(self, rules: Rules, effects: Effects, late: Callable[[int], None]):
        self.rules = rules
        self.effects = effects
        # When those who give up memory, by device, should have given up some of it.
        self.leavers: Deadlines[tuple[int, str]] = Deadlines(late)

    def stir(self, tenant: Tenant) -> None:
        """Memory may have to move now on the devices of the tenant where somebody swaps."""
        swapping = self.rules.where.swapping
        self.effects.stir(*[uuid for uuid in tenant.gang if uuid in swapping])

    def watch(self, tenant: int, device: Device) -> None:
        """From now on the tenant has MOVE_PATIENCE_NS to evict some of what it was told to."""
        leaves = device.residency.leaving(tenant)
        until = self.rules.now + MOVE_PATIENCE_NS if leaves else None
        self.leavers.put((tenant, device.uuid), until)

    def unwatch(self, tenant: int, uuid: str) -> None:
        self.leavers.put((tenant, uuid), None)

    def bring_back(self, gone: Tenant) -> None:
        """Let holders that stay restore what the holder that has gone had displaced."""
        there = {t.id: t for device in gone.devices for t in device.holders.values()}
        for tenant in there.values():
            stays = tenant.lease is not None and not tenant.lease.revoked
            if stays and tenant.heeds == ALONE and tenant.id not in self.effects.granted:
                self._restore(tenant)

    def _restore(self, tenant: Tenant) -> None:
        parts = self.rules.parts_of(tenant)
        if tenant.lease is None or not any(device.missing(tenant.id) for device, _ in parts):
            return
        prefetch: dict[str, int] = {}
        for device in tenant.devices:
            prefetch[device.uuid], bytes_out = device.residency.touch(tenant.id)
            self.effects.moved |= device.bit
            self.effects.stir(device.uuid)
            tenant.usage[device.uuid].move(prefetch[device.uuid], bytes_out)
        quantum = self.rules.quantum(tenant)
        self.effects.do(Restore(tenant.id, tenant.lease.epoch, quantum, prefetch))

    def move(self) -> None:
        """At the end of an event, tell tenants what to restore and what to evict."""
        for uuid in self.effects.take_stirred():
            device = self.rules.devices[uuid]
            if device.holders and device.residency.swappers and not device.fits:
                self._preload(device)
            if device.residency.lost:
                self._evict(uuid, device)

    def _preload(self, device: Device) -> None:
        """While a holder works, let the next waiter that swaps get ready, then those behind it."""
        residency = device.residency
        if device.restoring:
            return  # the link is busy
        first = self.rules.first_on(device)
        for tenant in self._lacking(device):
            comes_next = first is not None and tenant == first.id
            if not comes_next and residency.resident >= residency.capacity:
                break
            bytes_in, bytes_out = residency.preload(tenant, comes_next)
            if bytes_in:
                self.effects.moved |= device.bit
                self.rules.tenants[tenant].usage[device.uuid].move(bytes_in, bytes_out)
                self.effects.do(Preload(tenant, device.uuid, bytes_in))

    def _lacking(self, device: Device) -> list[int]:
        """Of the waiters at the front that swap, those of whose memory some is not there."""
        swappers = device.residency.swappers
        waiting = [tenant.id for _, tenant in device.line if tenant.id in swappers]
        return [tenant for tenant in waiting[:LOOK_AHEAD] if swappers[tenant].lacks]

    def _evict(self, uuid: str, device: Device) -> None:
        """Tell tenants that swap what they have lost to others."""
        for tenant, lost in device.residency.take_lost().items():
            self.effects.do(Evict(tenant, uuid, lost))
            if self.leavers.of((tenant, uuid)) is None:
                self.watch(tenant, device)
