"""Side by side or one at a time: what follows when that changes. The arbiter's first half."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from leased.core.deadlines import Deadlines
from leased.events import Action, Evict, Preload, Restore, Revoke
from leased.rules import Rules
from leased.state import Device, Lease, Tenant

LOOK_AHEAD = 32


class Sharing(Rules):
    """What changed while one event is handled, and who must go or gets something back for it."""

    def __init__(self, devices: Mapping[str, int], now: int, drain_ns: int):
        super().__init__(devices, now)
        self.drain_ns = drain_ns
        self._changed: dict[str, None] = {}  # devices to decide about, in order
        self._dues: Deadlines[int] = Deadlines()  # when the lease of a tenant enters its next stage
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
                bytes_in, bytes_out = device.residency.preload(tenant.id, displace)
                displace = False
                if bytes_in:
                    tenant.usage[uuid].moved_bytes += bytes_in + bytes_out
                    self._actions.append(Preload(tenant.id, uuid, bytes_in))

    def _evict(self) -> None:
        """Tell those who swap what they have lost to others."""
        for uuid, device in self.devices.items():
            for tenant, lost in (
                device.residency.take_lost().items() if device.residency.lost else ()
            ):
                self._actions.append(Evict(tenant, uuid, lost))

    def _set_due(self, tenant: Tenant, lease: Lease, when: int | None) -> None:
        lease.due = when
        self._dues.put(tenant.id, when)

    def _revoke(self, tenant: Tenant, lease: Lease) -> None:
        lease.revoked = True
        self._set_due(tenant, lease, self.now + self.drain_ns)
        self._actions.append(Revoke(tenant.id, lease.epoch, self.drain_ns))
