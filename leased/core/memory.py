"""Who gives up memory for whom, who brings it in, and whether all of it fits: of all devices.

What has left has left, and nothing before: see leased/core/residency.py, which has the
amounts. Here is when which tenant hears of it.
"""

from __future__ import annotations

from leased.core.actions import Evict, Leave, Preload, Restore
from leased.core.deadlines import Deadlines
from leased.core.effects import Effects
from leased.core.line import Place
from leased.core.rules import MOVE_PATIENCE_NS, Rules
from leased.core.state import Device, Tenant
from leased.core.tenant_events import LeftUncopied, MemoryChanged

LOOK_AHEAD = 32  # who wait that may bring in what there is room for


class Memory:
    """Tells tenants what to do with their memory; see Residency for what each has."""

    def __init__(self, rules: Rules, effects: Effects):
        self.rules = rules
        self.effects = effects
        # When those who give up memory, by device, should have given up some of it.
        self.movers: Deadlines[tuple[int, str]] = Deadlines()
        self.calms: Deadlines[str] = Deadlines()  # when what fits again will have for long enough
        self.affected: set[int] = set()  # tenants for whom other room is left than before
        self.shrunk: set[int] = set()  # waiters that have less than before
        for device in rules.devices.values():
            device.residency.staying.affected = self.affected
            device.residency.shrunk = self.shrunk
        self._stirred: dict[str, None] = {}  # devices where something may be brought in

    # -- what happens to it ----------------------------------------------------------

    def change(self, tenant: Tenant, event: MemoryChanged) -> bool:
        """It has more or less than before, or says what of it is there: is that more?"""
        usage, device = tenant.usage.get(event.device), self.rules.devices[event.device]
        if usage is None:
            return False
        residency = device.residency
        leaving, reported = residency.leaving(tenant.id), residency.reported_by(tenant.id)
        holds = tenant.lease is not None
        usage.move(
            0, residency.set_bytes(tenant.id, event.bytes, holds, event.fixed, event.resident)
        )
        usage.peak_bytes = max(usage.peak_bytes, event.bytes + event.fixed)
        if residency.leaving(tenant.id) < leaving:
            self._watch(tenant.id, device)
        self.refit(device)
        self._see_off(tenant)
        return (event.resident or 0) > reported

    def left_uncopied(self, tenant: Tenant, event: LeftUncopied) -> None:
        """What it lost was counted as moved, for whoever needed the room: this was not."""
        usage, device = tenant.usage.get(event.device), self.rules.devices.get(event.device)
        if usage is None or device is None:
            return
        usage.clean_bytes += event.bytes
        taker, counted = device.residency.uncount(tenant.id, event.bytes)
        charged = self.rules.tenants.get(taker) if taker is not None else None
        if charged is not None and event.device in charged.usage:
            charged.usage[event.device].take_back(counted)

    def set_room(self, device: Device, size: int) -> None:
        device.residency.set_room(size)
        self.refit(device)

    def freeze(self, tenant: Tenant, frozen: bool) -> None:
        for device in self._devices(tenant):
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
                self.movers.put((tenant.id, uuid), None)
                self.refit(self.rules.devices[uuid])

    def wait(self, tenant: Tenant, place: Place | None) -> None:
        """It has this place among those who wait; None: it does not wait any more."""
        for device in self._devices(tenant):
            device.residency.wait(tenant.id, place)
            self._stirred[device.uuid] = None

    def work(self, tenant: Tenant) -> dict[str, tuple[int, int]]:
        """All of it is brought in. Returns the bytes in and the bytes of others out by device."""
        moved = {}
        for device in self._devices(tenant):
            moved[device.uuid] = device.residency.touch(tenant.id)
            self.movers.put((tenant.id, device.uuid), None)
            self._stirred[device.uuid] = None
        return moved

    def rest(self, tenant: Tenant) -> None:
        for device in self._devices(tenant):
            device.residency.rest(tenant.id)
            self._watch(tenant.id, device)
            self._stirred[device.uuid] = None
        if tenant.parked:
            self.leave(tenant)

    def restored(self, tenant: Tenant) -> None:
        """The link is free for others."""
        self._stirred |= dict.fromkeys(tenant.gang)

    # -- parking -----------------------------------------------------------------------

    def leave(self, tenant: Tenant) -> None:
        """All that it has leaves. While it cannot act, nothing does."""
        if tenant.frozen:
            return
        for device in self._devices(tenant):
            tenant.usage[device.uuid].move(0, device.residency.leave(tenant.id))
            self._watch(tenant.id, device)
            self.refit(device)
        tenant.departs = True
        self._see_off(tenant)
        self.effects.do(Leave(tenant.id))

    def _see_off(self, tenant: Tenant) -> None:
        """Once all has left, or stays for good, what it asks for can be served."""
        leaving = (device.residency.leaving(tenant.id) for device in self._devices(tenant))
        if tenant.departs and not any(leaving):
            tenant.departs = False
            self.affected.add(tenant.id)

    def unpark(self, tenant: Tenant) -> None:
        """What it has counts again."""
        for device in self._devices(tenant):
            device.residency.unpark(tenant.id)
            self.refit(device)

    def come_back(self, tenant: Tenant) -> None:
        """What there is free room for comes back before it is asked for."""
        if tenant.departs or tenant.frozen or tenant.lease is not None or not tenant.swaps:
            return
        for device in self._devices(tenant):
            size, _ = device.residency.preload(tenant.id, False)
            if size:
                tenant.usage[device.uuid].move(size, 0)
                self.effects.do(Preload(tenant.id, device.uuid, size))

    def _devices(self, tenant: Tenant) -> list[Device]:
        return [self.rules.devices[uuid] for uuid in tenant.gang]

    # -- whether it fits ---------------------------------------------------------------

    def refit(self, device: Device) -> None:
        """Its memory may fit now, or not any more; and what it costs to change hands is news."""
        self.effects.changed |= self.rules.cohorts.bit[device.uuid]
        self._stirred[device.uuid] = None
        if not device.residency.fits():
            self.calms.put(device.uuid, None)
            if device.fits:
                device.fits = False
                self._use_otherwise(device)
        elif not device.fits and self.calms.of(device.uuid) is None:
            self.calms.put(device.uuid, self.rules.now + device.calm_ns)
            self._pass_calms()

    def _pass_calms(self) -> None:
        while (uuid := self.calms.pop(self.rules.now)) is not None:
            device = self.rules.devices[uuid]
            device.fits, device.fits_since = True, self.rules.now
            self._use_otherwise(device)

    def _use_otherwise(self, device: Device) -> None:
        self.rules.cohorts.changed()
        self.effects.changed |= self.rules.cohorts.bit[device.uuid]
        self.effects.unsettled = True

    def take_shrunk(self) -> list[Tenant]:
        """Waiters that have less on a device than before, as others need the room."""
        found = [self.rules.tenants[n] for n in sorted(self.shrunk)]
        self.shrunk.clear()
        return found

    def take_affected(self) -> list[Tenant]:
        """Tenants for whom there may be room now and was none, or the other way round, as they
        came; those that never waited by their number."""
        found = [self.rules.tenants[n] for n in self.affected if n in self.rules.tenants]
        self.affected.clear()
        return sorted(found, key=lambda tenant: (tenant.arrival, tenant.id))

    # -- time --------------------------------------------------------------------------

    def pass_deadlines(self) -> None:
        self._pass_calms()
        while (mover := self.movers.pop(self.rules.now)) is not None:
            # What does not leave stays: those for whom it should make room need not wait for it.
            device = self.rules.devices[mover[1]]
            device.residency.stall(mover[0])
            self.refit(device)
            self._see_off(self.rules.tenants[mover[0]])

    def _watch(self, tenant: int, device: Device) -> None:
        """From now on it has so long to give up some of what it was told to, if anything."""
        leaves = device.residency.leaving(tenant)
        until = self.rules.now + MOVE_PATIENCE_NS if leaves else None
        self.movers.put((tenant, device.uuid), until)

    # -- what is done about it -----------------------------------------------------------

    def bring_back(self, gone: Tenant) -> None:
        """Who stays when others had to go gets back at the link's speed what they displaced."""
        cohorts = self.rules.cohorts
        for cohort in cohorts.holders.alone(cohorts.mask(gone.gang)):
            for tenant in (*cohort.calm.values(), *cohort.told.values()):
                if tenant.id not in self.effects.granted:
                    self._restore(tenant)

    def _restore(self, tenant: Tenant) -> None:
        devices = self._devices(tenant)
        if tenant.lease is None or not any(d.residency.missing(tenant.id) for d in devices):
            return
        prefetch = {}
        for device in devices:
            prefetch[device.uuid], bytes_out = device.residency.touch(tenant.id)
            self._stirred[device.uuid] = None
            tenant.usage[device.uuid].move(prefetch[device.uuid], bytes_out)
        quantum = self.rules.quantum(tenant)
        self.effects.do(Restore(tenant.id, tenant.lease.epoch, quantum, prefetch))

    def move(self) -> None:
        """At the end of an event: tell who brings something in, and who gives something up."""
        stirred, self._stirred = self._stirred, {}
        for uuid in stirred:
            device = self.rules.devices[uuid]
            if device.holders and device.residency.order.waiting and not device.fits:
                self._preload(device)
            if device.residency.lost:
                self._evict(uuid, device)

    def _preload(self, device: Device) -> None:
        """While somebody works, who swaps and comes next gets ready, then those behind it."""
        residency = device.residency
        if device.restoring:
            return  # the link is busy
        cohorts = self.rules.cohorts
        first = next(cohorts.in_line(cohorts.bit[device.uuid])).first
        for tenant in residency.order.waiting.foremost(LOOK_AHEAD):
            comes_next = first is not None and tenant == first.id
            if not comes_next and residency.resident >= residency.capacity:
                break
            bytes_in, bytes_out = residency.preload(tenant, comes_next)
            if bytes_in:
                self.rules.tenants[tenant].usage[device.uuid].move(bytes_in, bytes_out)
                self.effects.do(Preload(tenant, device.uuid, bytes_in))

    def _evict(self, uuid: str, device: Device) -> None:
        """Tell those who swap what they have lost to others."""
        for tenant, lost in device.residency.take_lost().items():
            self.effects.do(Evict(tenant, uuid, lost))
            if self.movers.of((tenant, uuid)) is None:
                self._watch(tenant, device)
