"""Changes of a device by the site or the driver, while tenants hold it and wait."""

from __future__ import annotations

from leased.core.cohort import FREE, Cohort
from leased.core.device_events import (
    DrainSet,
    LockSet,
    OfDevice,
    PolicySet,
    QuantumSet,
    RoomChanged,
    SpeedKnown,
)
from leased.core.effects import Effects
from leased.core.leasing import Leasing
from leased.core.memory import Memory
from leased.core.rules import Rules
from leased.core.speed import Speed
from leased.core.state import Device, Tenant
from leased.core.waiters import Waiters


class DeviceSettings:
    """Applies the events of devices."""

    def __init__(
        self,
        rules: Rules,
        effects: Effects,
        memory: Memory,
        waiters: Waiters,
        leasing: Leasing,
    ):
        self.rules = rules
        self.effects = effects
        self.memory = memory
        self.waiters = waiters
        self.quanta = leasing.quanta
        self.contention = leasing.contention

    def apply(self, event: OfDevice) -> None:
        device = self.rules.devices[event.device]
        if isinstance(event, SpeedKnown):
            speed = Speed(event.bytes_s, event.seen, event.said)
            device.residency.set_speed(speed, event.swaps)
        elif isinstance(event, RoomChanged):
            self.memory.set_room(device, event.bytes)
        elif isinstance(event, DrainSet):
            self._drain(device, event.drained)
        elif isinstance(event, PolicySet):
            self.rules.policies.choose(device.uuid, event.policy)
            self.rules.shares.changed = True
        elif isinstance(event, QuantumSet):
            device.quantum_ns = event.quantum_ns
            self.rules.quantum_changed()
            self.quanta.plan_ends(device)
        else:
            self._lock(device, event)
        self.effects.changed |= self.rules.cohorts.bit[device.uuid]

    def _lock(self, device: Device, event: LockSet) -> None:
        """From now on tenants run side by side on the device, or by turns."""
        device.lock = event.lock
        for cohort in self.rules.cohorts.changed():
            self._turn(cohort)
        self.rules.charges.slice_again(self.rules.now)
        self.effects.unsettled = True

    def _turn(self, cohort: Cohort) -> None:
        """The cohort's tenants begin or cease to compete for its devices."""
        now, charges = self.rules.now, self.rules.charges
        if cohort.heeds == FREE:
            for tenant in (*cohort.holding.values(), *cohort.waiting):
                charges.forget(tenant, now)
            return
        for tenant in cohort.waiting:
            charges.begin(tenant, False, now)
        for tenant in cohort.holding.values():
            charges.begin(tenant, True, now)
        for tenant in list(cohort.calm.values()):
            self.contention.limit(tenant)

    def _drain(self, device: Device, drained: bool) -> None:
        device.drained = drained
        self.rules.drain_changed()
        self.effects.unsettled = True
        for tenant in device.queue.values():
            self.waiters.sort(tenant)

    def follow_shares(self) -> None:
        """Each device has the policy that the site has chosen, unless it is connected by gangs
        with the devices of a tenant that has a share: then its policy is one that keeps shares.
        Tenants that waited for their shares go on."""
        shares, cohorts = self.rules.shares, self.rules.cohorts
        if not shares.changed and not (shares.of and cohorts.gangs_changed):
            return
        shares.changed = False
        for tenant in shares.let_in():
            self.waiters.sort(tenant)
        with_share = cohorts.connected(cohorts.mask(shares.devices()))
        for uuid, bit in cohorts.bit.items():
            name = self.rules.policies.wanted(uuid, with_share & bit != 0)
            if name != self.rules.policies.of_device[uuid]:
                self._set_policy(self.rules.devices[uuid], name)
                self.effects.changed |= bit

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
            self._join_again(tenant)
        policies.clear()
        self.waiters.mix()
        self.quanta.plan_ends(device)
        self.effects.unsettled = True

    def follow_controls(self) -> None:
        """Time slices can divide the work of other tenants than before, so tenants with a share
        may run side by side, or take turns."""
        rules = self.rules
        if not rules.controls_changed or not rules.shares.of:
            return
        rules.controls_changed = False
        asking = [t for t in rules.tenants.values() if t.has_asked and not t.controlled]
        before = rules.uncontrolled_mask
        rules.uncontrolled_mask = rules.cohorts.mask(uuid for t in asking for uuid in t.gang)
        changed = rules.uncontrolled_mask ^ before
        found = [rules.tenants[n] for n in rules.shares.of]
        for tenant in sorted(found, key=lambda tenant: tenant.arrival):
            if rules.cohorts.of[tenant.id].mask & changed:
                self._join_again(tenant)
                self.effects.changed |= rules.cohorts.of[tenant.id].mask
                self.effects.unsettled = True

    def _join_again(self, tenant: Tenant) -> None:
        """The tenant has another place, and may have begun or ceased to run beside others."""
        beside, cohorts = self.rules.may_share(tenant), self.rules.cohorts
        if cohorts.of[tenant.id].beside == beside:
            self.waiters.look_again(tenant)
            return
        lease, in_line = tenant.lease, tenant.place is not None
        if lease is not None:
            if lease.contended and not lease.revoked:
                self.contention.end_contention(tenant)
            cohorts.end(tenant)
        if in_line:
            self.waiters.leave_line(tenant)
        cohorts.leave(tenant)
        cohorts.join(tenant, beside)
        self.rules.charges.slice_again(self.rules.now)
        if in_line:
            self.waiters.line_up(tenant)
        elif tenant.barred:
            self.waiters.look_again(tenant)
        if lease is not None:
            cohorts.hold(tenant)
            if lease.revoked:
                cohorts.holders.revoke(tenant, cohorts.of[tenant.id])
            else:
                self.contention.limit(tenant)
