"""Side by side or one at a time: what follows when that changes. The arbiter's first half."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from leased.core.deadlines import Deadlines
from leased.events import Action, Evict, MemoryChanged, Preload, Restore, Revoke
from leased.rules import Rules
from leased.state import Device, Lease, Tenant

LOOK_AHEAD = 32
MOVE_PATIENCE_NS = 5_000_000_000  # for some of what was told to leave a device to do so


class Sharing(Rules):
    """What changed while one event is handled, and who must go or gets something back for it."""

    def __init__(self, devices: Mapping[str, int], now: int, drain_ns: int):
        super().__init__(devices, now)
        self.drain_ns = drain_ns
        self._changed: dict[str, None] = {}  # devices to decide about, in order
        self._dues: Deadlines[int] = Deadlines()  # when a tenant's lease enters its next stage
        # When those who give up memory, by device, should have given up some of it.
        self._movers: Deadlines[tuple[int, str]] = Deadlines()
        self._actions: list[Action] = []
        self._granted: dict[int, int] = {}  # by tenant: its Grant's place in _actions

    def _refit(self, device: Device) -> None:
        """Its memory may fit now, or not any more."""
        if not device.residency.fits():
            device.fits_at = None
            if device.fits:
                device.fits = False
                self._reconsider(device)
        elif not device.fits and device.fits_at is None:
            device.fits_at = self.now + device.calm_ns
            self._pass_calm(device)

    def _pass_calm(self, device: Device) -> None:
        if device.fits_at is not None and device.fits_at <= self.now:
            device.fits, device.fits_at, device.fits_since = True, None, self.now
            self._reconsider(device)

    def _reconsider(self, device: Device) -> None:
        """Who may run beside whom has changed here, so for its tenants everywhere."""
        self._changed[device.uuid] = None
        for tenant in itertools.chain(device.holders.values(), device.queue.values()):
            self._changed |= dict.fromkeys(tenant.gang)

    def _separate(self, device: Device) -> None:
        """Holders that may no longer run side by side: the first stays, the others go."""
        if len(device.holders) < 2:
            return
        stays: Tenant | None = None
        all_share = True
        for tenant in self.holders(device.uuid):
            lease = tenant.lease
            if lease is None or lease.revoked or self.lock_of(tenant) == "off":
                continue
            shares = self.can_share(tenant)
            if stays is None:
                stays, all_share = tenant, shares
            elif not (all_share and shares):
                assert stays.lease is not None
                stays.lease.since = self.now
                if not device.fits:
                    device.note_separation(self.now)
                self._revoke(tenant, lease)

    def _restore(self, released: int) -> None:
        """Who stays when others had to go gets back at the link's speed what they displaced."""
        gone = self.tenants.get(released)
        if gone is None:
            return
        stay = {t.id: t for uuid in gone.gang for t in self.devices[uuid].holders.values()}
        for tenant in stay.values():
            lease = tenant.lease
            if lease is None or lease.revoked or tenant.id in self._granted:
                continue
            devices = {uuid: self.devices[uuid].residency for uuid in tenant.gang}
            if self.can_share(tenant) or not any(r.missing(tenant.id) for r in devices.values()):
                continue
            prefetch = {}
            for uuid, residency in devices.items():
                prefetch[uuid], bytes_out = residency.touch(tenant.id)
                tenant.usage[uuid].moved_bytes += prefetch[uuid] + bytes_out
            quantum = self.quantum(tenant, 0)
            self._actions.append(Restore(tenant.id, lease.epoch, quantum, prefetch))

    def _preload(self) -> None:
        """While somebody works, who swaps and comes next gets ready, then those behind it."""
        for uuid, device in self.devices.items():
            if device.fits or not device.residency.swappers or not device.holders:
                continue
            if any(h.lease and h.lease.restoring for h in device.holders.values()):
                continue  # the link is busy
            displace = True
            for tenant in itertools.islice(device.queue.values(), LOOK_AHEAD):
                if self.withheld(tenant):
                    continue
                bytes_in, bytes_out = device.residency.preload(tenant.id, displace)
                displace = False
                if bytes_in:
                    tenant.usage[uuid].moved_bytes += bytes_in + bytes_out
                    self._actions.append(Preload(tenant.id, uuid, bytes_in))

    def _set_memory(self, tenant: Tenant, event: MemoryChanged) -> None:
        if event.device not in tenant.usage:
            return
        usage, device = tenant.usage[event.device], self.devices[event.device]
        residency = device.residency
        before, leaving = residency.fixed + residency.stuck, residency.leaving(tenant.id)
        usage.moved_bytes += residency.set_bytes(
            tenant.id, event.bytes, tenant.lease is not None, event.fixed, event.resident
        )
        usage.peak_bytes = max(usage.peak_bytes, event.bytes + event.fixed)
        if residency.leaving(tenant.id) < leaving:
            self._watch(tenant.id, device)
        if before or residency.fixed + residency.stuck:
            self._stay(device)
        self._refit(device)

    def _freeze(self, tenant: Tenant, frozen: bool) -> None:
        """It cannot act, or can again. Until then the time is not its debt."""
        tenant.frozen = frozen
        if tenant.forfeited:
            tenant.forfeited = tenant.forfeited[0], None if frozen else self.now
        for uuid in tenant.gang:
            self.devices[uuid].residency.freeze(tenant.id, frozen)
            self._watch(tenant.id, self.devices[uuid])
            self._stay(self.devices[uuid])

    def _evict(self) -> None:
        """Tell those who swap what they have lost to others."""
        for uuid, device in self.devices.items():
            for tenant, lost in (
                device.residency.take_lost().items() if device.residency.lost else ()
            ):
                self._actions.append(Evict(tenant, uuid, lost))
                if self._movers.of((tenant, uuid)) is None:
                    self._watch(tenant, device)

    def _watch(self, tenant: int, device: Device) -> None:
        """From now on it has so long to give up some of what it was told to, if anything."""
        until = self.now + MOVE_PATIENCE_NS if device.residency.leaving(tenant) else None
        self._movers.put((tenant, device.uuid), until)

    def _pass_movers(self) -> None:
        """What does not leave stays: those for whom it should make room need not wait for it."""
        while (mover := self._movers.pop(self.now)) is not None:
            tenant, device = mover[0], self.devices[mover[1]]
            device.residency.stall(tenant)
            self._stay(device)

    def _stay(self, device: Device) -> None:
        """Other memory than before cannot be moved. Who was granted for memory that turns out
        to stay can never have its own back."""
        for holder in list(device.holders.values()):
            lease = holder.lease
            if lease is None or not lease.restoring or lease.revoked:
                continue
            if device.residency.crowded_out(holder.id):
                self._revoke(holder, lease)
        self._reconsider(device)

    def _set_due(self, tenant: Tenant, lease: Lease, when: int | None) -> None:
        lease.due = when
        self._dues.put(tenant.id, when)

    def _revoke(self, tenant: Tenant, lease: Lease) -> None:
        lease.revoked = True
        self._set_due(tenant, lease, self.now + self.drain_ns)
        self._actions.append(Revoke(tenant.id, lease.epoch, self.drain_ns))
