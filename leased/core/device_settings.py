"""Changes of a device by the site or the driver, while tenants hold it and wait."""

from __future__ import annotations

from leased.core import events
from leased.core.leasing import Leasing
from leased.core.rules import NEW_CONTROLS, NEW_GANGS, NEW_SHARES
from leased.core.state import Device
from leased.memory.speed import Speed
from leased.usage.gauge import divided, weights_beside


class DeviceSettings:
    """Applies the events of devices."""

    def __init__(self, leasing: Leasing):
        self.rules, self.effects = leasing.rules, leasing.effects
        self.memory, self.waiters, self.stages = leasing.memory, leasing.waiters, leasing.stages

    def apply(self, event: events.OfDevice) -> None:
        if isinstance(event, events.WorkMeasured):
            self._measured(event)
            return
        device = self.rules.devices[event.device]
        if isinstance(event, events.SpeedKnown):
            speed = Speed(event.bytes_s, event.seen, event.said)
            if event.swaps:
                device.residency.link = speed
            else:
                device.residency.paging = speed
        elif isinstance(event, events.RoomChanged):
            device.residency.set_room(event.bytes)
            self.memory.refit(device)
        elif isinstance(event, events.DrainSet):
            self._drain(device, event.drained)
        elif isinstance(event, events.PolicySet):
            self.rules.policies.choose(device.uuid, event.policy)
            self.rules.news |= NEW_SHARES
        elif isinstance(event, events.QuantumSet):
            device.quantum_ns = event.quantum_ns
            self.stages.plan_ends(device)
        elif isinstance(event, events.LockSet):
            self._lock(device, event)
        self.effects.changed |= device.bit

    def _lock(self, device: Device, event: events.LockSet) -> None:
        """From now on tenants run side by side on the device, or by turns."""
        device.lock = event.lock
        tenants = self.rules.tenants.values()
        self.waiters.heed_again(t for t in tenants if t.mask & device.bit)
        self.effects.unsettled = True

    def _drain(self, device: Device, drained: bool) -> None:
        device.drained = drained
        rules = self.rules
        rules.drained_mask = sum(d.bit for d in rules.devices.values() if d.drained)
        self.effects.unsettled = True
        for tenant in rules.waiting(device.bit):
            self.waiters.sort(tenant)

    def follow(self) -> None:
        """What has changed beside the event itself, for tenants with shares and for gangs."""
        rules = self.rules
        news, rules.news = rules.news, 0
        if news & NEW_SHARES or (news & NEW_GANGS and rules.shares.of):
            self._follow_shares()
        if news & NEW_CONTROLS and rules.shares.of:
            self._follow_controls()
        if news & NEW_GANGS:
            self.waiters.mix()

    def _follow_shares(self) -> None:
        """Each device has the policy that the site has chosen, unless it is connected by gangs
        with the devices of a tenant that has a share: then its policy is one that keeps shares.
        Tenants that waited for their shares go on."""
        rules, shares = self.rules, self.rules.shares
        for tenant in shares.let_in():
            self.waiters.sort(tenant)
        with_share = rules.connected(rules.mask(shares.devices()))
        for uuid, device in rules.devices.items():
            name = rules.policies.wanted(uuid, with_share & device.bit != 0)
            if name != rules.policies.of_device[uuid]:
                self._set_policy(device, name)
                self.effects.changed |= device.bit

    def _set_policy(self, device: Device, name: str) -> None:
        """The policy of that name serves the tenants whose first device this is."""
        policies = self.rules.policies
        before = policies.on(device.uuid)
        tenants = [t for t in self.rules.tenants.values() if t.gang[0] == device.uuid]
        for tenant in tenants:
            self.rules.charges.charge(tenant, self.rules.now)
        policies.set(device.uuid, name)
        after = policies.on(device.uuid)
        if after is before:
            return
        for tenant in sorted(tenants, key=lambda tenant: tenant.arrival):
            before.closed(tenant.id)
            after.opened(tenant)
        policies.clear()
        self.rules.charges.follow(self.rules.tenants.values(), self.rules.now)
        for tenant in tenants:
            self.waiters.look_again(tenant)
        self.waiters.mix()
        self.stages.plan_ends(device)
        self.effects.unsettled = True

    def _follow_controls(self) -> None:
        """Time slices can divide the work of other tenants than before, so tenants with a share
        may run side by side, or take turns."""
        self.rules.follow_controls()
        self.waiters.heed_again(list(self.rules.shares.of.values()))

    def _measured(self, event: events.WorkMeasured) -> None:
        """Divide what the driver has measured among those that held the device meanwhile, for their
        usage, by lease time. Parts of tenants that are closed, or of no tenant, are lost."""
        device = self.rules.devices.get(event.device)
        if device is None:
            return
        tenants = self.rules.tenants
        found = {
            number: held
            for number, held in device.gauge.take(device.clock.reading(self.rules.now)).items()
            if number in tenants and event.device in tenants[number].usage
        }
        known = weights_beside(found, event.parts, _worked(event)) if event.parts else {}
        shifts = divided(found, known)
        for number, held in found.items():
            shift = shifts.get(number, 0)
            if shift:
                tenants[number].settle(self.rules.now, self.rules.devices)
            usage = tenants[number].usage[event.device]
            usage.lease_ns += shift
            lease_ns, clock_ns = min(held.lease_ns + shift, event.ns), min(held.clock_ns, event.ns)
            if event.busy_percent is not None:
                usage.measured_ns += lease_ns
                usage.busy_ns += lease_ns * event.busy_percent // 100
                share = device.residency.of(number)
                if share.fixed or share.evictable:
                    usage.idle_resident_ns += clock_ns * (100 - event.busy_percent) // 100
            if event.energy_mj is not None and event.ns:
                usage.energy_mj += event.energy_mj * lease_ns // event.ns


def _worked(event: events.WorkMeasured) -> dict[int, int]:
    """By tenant, for how many ns the device worked for it; empty: that is not known."""
    total = sum(part.weight for part in event.parts)
    busy_ns = event.ns * (event.busy_percent or 0) // 100
    return {part.tenant: busy_ns * part.weight // total for part in event.parts if part.weight > 0}
