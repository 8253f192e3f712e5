"""Changes of a device by the site, a trial or the driver, while tenants hold it and wait."""

from __future__ import annotations

from leased.core.cohort import FREE, Cohort
from leased.core.device_events import (
    DrainSet,
    LockSet,
    ModeSet,
    OfDevice,
    PolicySet,
    QuantumSet,
    RoomChanged,
    SpeedKnown,
)
from leased.core.effects import Effects
from leased.core.leasing import Leasing
from leased.core.memory import Memory
from leased.core.policy import Policy
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
            self._use(device, event)
        self.effects.changed |= self.rules.cohorts.bit[device.uuid]

    def _use(self, device: Device, event: LockSet | ModeSet) -> None:
        """From now on tenants run side by side on the device, or by turns."""
        if isinstance(event, LockSet):
            device.lock = event.lock
        else:
            device.exclusive, device.chosen_why = event.exclusive, event.why
            device.turn_ns = event.quantum_ns
            self.quanta.plan_ends(device)
        for cohort in self.rules.cohorts.changed():
            self._turn(cohort)
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
            self._join_again(tenant, after)
        policies.clear()
        self.waiters.mix()
        self.quanta.plan_ends(device)
        self.effects.unsettled = True

    def ask_again(self, device: Device) -> None:
        """Ask again whether tenants may run side by side on this device."""
        there = [t for t in self.rules.tenants.values() if device.uuid in t.gang]
        for tenant in sorted(there, key=lambda tenant: tenant.arrival):
            self._join_again(tenant, self.rules.policies.of(tenant))
        self.effects.unsettled = True
        self.effects.changed |= self.rules.cohorts.bit[device.uuid]

    def _join_again(self, tenant: Tenant, policy: Policy) -> None:
        """The policy gives the tenant another place, and perhaps another cohort."""
        beside, cohorts = policy.beside(self.rules, tenant), self.rules.cohorts
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
        if in_line:
            self.waiters.line_up(tenant)
        if lease is not None:
            cohorts.hold(tenant)
            if lease.revoked:
                cohorts.holders.revoke(tenant, cohorts.of[tenant.id])
            else:
                self.contention.limit(tenant)
