"""Whether the memory of all tenants fits on each device, and which tenants have room."""

from __future__ import annotations

from leased.core.deadlines import Deadlines
from leased.core.effects import Effects
from leased.core.rules import Rules
from leased.core.state import Device, Tenant


class Fitting:
    """affected: tenants that may have room now and had none, or the reverse. shrunk: waiters that
    have less memory on a device than before. turned: devices, as bits, where all memory fits now
    and did not, or the reverse."""

    def __init__(self, rules: Rules, effects: Effects):
        self.rules = rules
        self.effects = effects
        self.calms: Deadlines[str] = Deadlines()  # when memory will have fitted for long enough
        self.affected: set[int] = set()
        self.shrunk: set[int] = set()
        self.turned = 0
        for device in rules.devices.values():
            device.residency.affected = self.affected
            device.residency.shrunk = self.shrunk

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
            self.pass_deadlines()

    def pass_deadlines(self) -> None:
        while (uuid := self.calms.pop(self.rules.now)) is not None:
            device = self.rules.devices[uuid]
            device.fits, device.fits_since = True, self.rules.now
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
