"""What happens to a tenant's memory, on all of its devices at once.

leased/memory/residency.py has the amounts for each device; here is who is told to evict and to
restore what. A tenant that is told to evict is watched: what has not left counts as resident, and
if nothing leaves for a while, all of it counts as staying.
"""

from __future__ import annotations

from leased.core.actions import Effects, Evict, Leave, Preload, Restore
from leased.core.deadlines import Deadlines
from leased.core.events import LeftUncopied, MemoryChanged
from leased.core.rules import MOVE_PATIENCE_NS, Rules
from leased.core.state import ALONE, Device, Tenant
from leased.memory.share import Place

NOTHING = 0, 0  # bytes in, bytes of others out
LOOK_AHEAD = 32  # waiters at the front of the line that may bring in what there is room for


class Memory:
    """Carries what happens to a tenant to its devices, and sees whether all fits there.

    calms: when all memory of a device will have fitted for long enough. affected: tenants that may
    have room now and had none, or the reverse. shrunk: waiters that have less memory on a device
    than before. turned: devices, as bits, where all fits now and did not, or the reverse. leavers:
    when those who give up memory, by device, should have given up some of it.
    """

    def __init__(self, rules: Rules, effects: Effects):
        self.rules = rules
        self.effects = effects
        self.calms: Deadlines[str] = Deadlines(self.pass_calms)
        self.affected: set[int] = set()
        self.shrunk: set[int] = set()
        self.turned = 0
        for device in rules.devices.values():
            device.residency.affected = self.affected
            device.residency.shrunk = self.shrunk
        self.leavers: Deadlines[tuple[int, str]] = Deadlines(self.pass_leavers)

    # -- what happens to it ----------------------------------------------------------

    def change(self, tenant: Tenant, event: MemoryChanged) -> int:
        """The tenant has more or less memory, or reports what is resident. Returns how much more
        resident memory it reports than before."""
        usage, device = tenant.usage.get(event.device), self.rules.devices[event.device]
        if usage is None:
            return 0
        residency = device.residency
        leaving, reported = residency.leaving(tenant.id), residency.of(tenant.id).reported or 0
        # A tenant that is to have more devices may have memory there before it has their lease.
        holds = tenant.lease is not None and event.device in tenant.gang
        amounts = event.bytes, holds, event.fixed, event.resident
        usage.move(0, residency.set_bytes(tenant.id, *amounts, place=tenant.place))
        usage.peak_bytes = max(usage.peak_bytes, event.bytes + event.fixed)
        if residency.leaving(tenant.id) != leaving:
            self._watch(tenant.id, device)
        self.refit(device)
        self._see_off(tenant)
        return (event.resident or 0) - reported

    def left_uncopied(self, tenant: Tenant, event: LeftUncopied) -> None:
        """Some of what it evicted was not copied, so it does not count as moved for the taker."""
        usage, device = tenant.usage.get(event.device), self.rules.devices.get(event.device)
        if usage is None or device is None:
            return
        usage.clean_bytes += event.bytes
        taker, counted = device.residency.uncount(tenant.id, event.bytes)
        charged = self.rules.tenants.get(taker) if taker is not None else None
        if charged is not None and event.device in charged.usage:
            charged.usage[event.device].take_back(counted)

    def freeze(self, tenant: Tenant, frozen: bool) -> None:
        for device in tenant.devices:
            device.residency.freeze(tenant.id, frozen)
            self._watch(tenant.id, device)
            self.refit(device)
        self._see_off(tenant)
        if tenant.parked and not frozen and tenant.lease is None:
            self.leave(tenant)

    def forget(self, tenant: Tenant) -> None:
        for uuid in tenant.usage:
            if uuid in self.rules.devices:  # not so a GPU that was lost when this daemon started
                self.rules.devices[uuid].residency.forget(tenant.id)
                self.leavers.put((tenant.id, uuid), None)
                self.refit(self.rules.devices[uuid])

    def wait(self, tenant: Tenant, place: Place | None) -> None:
        """The tenant has this place in the line; None: it does not wait any more."""
        for residency, share in self.rules.parts_of(tenant):
            if share.resident or share.fixed or share.reported is not None:
                residency.wait(tenant.id, place)
        if self.rules.where.swapping:
            self.stir(tenant)

    def work(self, tenant: Tenant) -> dict[str, tuple[int, int]]:
        """All its memory comes in. Returns (bytes in, bytes of others out) by device, of those
        where any move."""
        tenant.lingers = False
        moved, parts = {}, self.rules.parts_of(tenant)
        for residency, _ in parts:
            both = residency.touch(tenant.id)
            if both != NOTHING:
                moved[residency.uuid] = both
        for residency, _ in parts if self.leavers.heap else ():
            self.leavers.put((tenant.id, residency.uuid), None)
        if self.rules.where.swapping:
            self.stir(tenant)
        return moved

    def rest(self, tenant: Tenant) -> None:
        """The tenant does not hold any more, and its memory may leave."""
        tenant.lingers = False
        leaves = tenant.swaps or self.leavers.heap
        self.effects.moved |= tenant.mask if tenant.swaps else 0
        for residency, _ in self.rules.parts_of(tenant):
            residency.rest(tenant.id)
            if leaves:
                self._watch(tenant.id, self.rules.devices[residency.uuid])
            if tenant.place is not None:  # it had lingered, and waits meanwhile
                residency.wait(tenant.id, tenant.place)
        if self.rules.where.swapping:
            self.stir(tenant)
        if tenant.parked:
            self.leave(tenant)

    def awaits_room(self, tenant: Tenant) -> bool:
        """The driver brings managed memory in, and kills a program where there is no room, so its
        tenant cannot begin before what others have to evict has left, nor one that swaps beside
        it."""
        return any(d.residency.awaits_room(tenant.swaps) for d in tenant.devices)

    # -- parking -----------------------------------------------------------------------

    def leave(self, tenant: Tenant) -> None:
        """Tell the tenant to evict all its memory, unless it cannot act."""
        if tenant.frozen:
            return
        if tenant.lingers:
            tenant.lingers = False
            for residency, _ in self.rules.parts_of(tenant):
                residency.rest(tenant.id)
        for device in tenant.devices:
            tenant.usage[device.uuid].move(0, device.residency.leave(tenant.id))
            self._watch(tenant.id, device)
            self.refit(device)
        tenant.departs = True
        self._see_off(tenant)
        self.effects.do(Leave(tenant.id))

    def _see_off(self, tenant: Tenant) -> None:
        """Once all its memory has left, or is known to stay, its next request can be served."""
        if not tenant.departs:
            return
        devices = tenant.devices
        if not any(device.residency.leaving(tenant.id) for device in devices):
            tenant.departs = False
            self.affected.add(tenant.id)

    def unpark(self, tenant: Tenant) -> None:
        """Count the tenant's memory again, as it is not parked any more."""
        for device in tenant.devices:
            device.residency.unpark(tenant.id)
            self.refit(device)

    def come_back(self, tenant: Tenant) -> None:
        """Tell the tenant to restore what there is free room for, before it requests a lease."""
        if tenant.departs or tenant.frozen or tenant.lease is not None or not tenant.swaps:
            return
        for device in tenant.devices:
            size, _ = device.residency.preload(tenant.id, False)
            if size:
                self.effects.moved |= device.bit
                tenant.usage[device.uuid].move(size, 0)
                self.effects.do(Preload(tenant.id, device.uuid, size))

    # -- whether all of it fits ------------------------------------------------------

    def refit(self, device: Device) -> None:
        """The device's memory has changed: all of it may fit now, or not fit any more."""
        self.effects.moved |= device.bit
        self.effects.changed |= device.bit
        self.effects.stir(device.uuid)
        if not device.residency.fits():
            self.calms.put(device.uuid, None)
            if device.fits:
                device.fits = False
                self._use_otherwise(device)
        elif not device.fits and self.calms.of(device.uuid) is None:
            self.calms.put(device.uuid, self.rules.now + device.calm_ns)
            self.pass_calms(self.rules.now)

    def pass_calms(self, now: int) -> None:
        while (uuid := self.calms.pop(now)) is not None:
            device = self.rules.devices[uuid]
            device.fits, device.fits_since = True, now
            self._use_otherwise(device)

    def _use_otherwise(self, device: Device) -> None:
        self.turned |= device.bit
        self.effects.changed |= device.bit
        self.effects.unsettled = True

    def take_shrunk(self) -> list[Tenant]:
        """The waiters that have less memory on a device than when this was last asked."""
        found = [self.rules.tenants[n] for n in sorted(self.shrunk)]
        self.shrunk.clear()
        return found

    def take_affected(self) -> list[Tenant]:
        """The tenants for which room may have come or gone since this was last asked, in the order
        in which they began to wait; of those that never waited, by their number."""
        found = [self.rules.tenants[n] for n in self.affected if n in self.rules.tenants]
        self.affected.clear()
        return sorted(found, key=lambda tenant: (tenant.arrival, tenant.id))

    # -- who is told to evict and to restore, apart from what grants say ----------------

    def stir(self, tenant: Tenant) -> None:
        """Memory may have to move now on the devices of the tenant where somebody swaps."""
        swapping = self.rules.where.swapping
        self.effects.stir(*[uuid for uuid in tenant.gang if uuid in swapping])

    def _watch(self, tenant: int, device: Device) -> None:
        """From now on the tenant has MOVE_PATIENCE_NS to evict some of what it was told to."""
        leaves = device.residency.leaving(tenant)
        until = self.rules.now + MOVE_PATIENCE_NS if leaves else None
        self.leavers.put((tenant, device.uuid), until)

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
        self.effects.do(Restore(tenant.id, tenant.lease.epoch, prefetch))

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
                self._watch(tenant, device)

    # -- what does not leave -----------------------------------------------------------

    def pass_leavers(self, now: int) -> None:
        """What does not leave counts as staying, so that nobody waits for its room."""
        while (late := self.leavers.pop(now)) is not None:
            tenant, device = self.rules.tenants[late[0]], self.rules.devices[late[1]]
            device.residency.stall(tenant.id)
            self.refit(device)
            self._see_off(tenant)
