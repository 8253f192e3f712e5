"""Who may use which device, and until when: pure. Events and times in, actions out.

No sockets, no clock, no NVML: the daemon, a simulator and the property tests
drive the same object. All times are ns of one monotonic clock.

The policy of a device says in which order waiters are served and how long a
holder runs (core/policy.py). These rules hold under every policy:
- A gang is leased all or none. A waiter that could not run (its device is drained,
  it cannot act, it swaps and others have so much there that cannot move) holds
  nobody up, and begins to wait when it can run again.
- A holder that is in a waiter's way is told once that it is contended: it yields
  when it has been idle for long enough, and is revoked when its quantum ends. A
  quantum is at least HANDOFF_SHARE times the handoff. While nobody waits there is
  no deadline and no message.
- Devices that the first in the line cannot use yet, because it waits for others
  of its gang, go to those behind it until it can (core/turns.py). So nothing idles.
- lock auto: side by side while the memory of all fits; one at a time from the
  moment it does not, and back when it has fitted for a while that doubles with
  every change that was undone soon: it cannot flap.
- Who cannot act (stopped, suspended) holds nobody up: its devices go to others at
  once, and what it has there stays until it has left.
- Who does not release within drain_ns has overrun: the excess comes off its
  next quanta. After as long again its devices go to others beside it. Processes
  of it that have released wait for their turn like anybody: what they do may be
  what the others' work waits for.

An event costs as much as it changes. The number of tenants that wait or hold makes no
difference, and the number of different gangs, locks and kinds of memory among them little
(core/cohorts.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from leased.core import work
from leased.core.actions import (
    Action,
    Contend,
    Evict,
    Expect,
    Forfeit,
    Grant,
    Leave,
    Overrun,
    PassedOver,
    Preload,
    Restore,
    Revoke,
)
from leased.core.deciding import Deciding
from leased.core.departures import Departures
from leased.core.device_events import (
    DrainSet,
    LockSet,
    ModeSet,
    OfDevice,
    PolicySet,
    QuantumSet,
    RoomChanged,
    SpeedKnown,
    WorkMeasured,
)
from leased.core.device_settings import DeviceSettings
from leased.core.effects import Effects
from leased.core.events import DrainLimitSet, Event, Rejoined, Tick
from leased.core.leasing import Leasing
from leased.core.memory import Memory
from leased.core.policy import MakePolicy, PolicyState
from leased.core.policy_states import PolicyStates
from leased.core.rules import Rules
from leased.core.stages import IDLE_FLOOR_NS, RESTORE_NS
from leased.core.state import Device, Tenant
from leased.core.tenant_events import (
    Adopted,
    Closed,
    Frozen,
    LeftUncopied,
    MemoryChanged,
    OfTenant,
    Opened,
    Parked,
    PolicyRestored,
    Released,
    Requested,
    Restored,
    SpeedMeasured,
    StraySeen,
    Thawed,
    Unparked,
    UsageRestored,
    Widened,
)
from leased.core.turns import Turns
from leased.core.usage import Usage
from leased.core.waiters import Waiters

__all__ = [
    "IDLE_FLOOR_NS", "RESTORE_NS",
    "Action", "Adopted", "Arbiter", "Closed", "Contend", "Device", "DrainLimitSet", "DrainSet",
    "Event", "Evict", "Expect", "Forfeit", "Frozen", "Grant", "Leave", "LockSet", "MemoryChanged",
    "ModeSet", "Opened", "Overrun", "Parked", "PassedOver", "PolicyRestored", "PolicySet",
    "Preload", "QuantumSet", "Rejoined", "Released", "Requested", "Restore", "Restored", "Revoke",
    "RoomChanged", "SpeedKnown", "SpeedMeasured", "StraySeen", "Tenant", "Thawed", "Tick",
    "Unparked", "Usage",
    "UsageRestored", "Widened", "WorkMeasured",
]  # fmt: skip

DRAIN_NS = 10_000_000_000


class Arbiter:
    """See the module's text. `devices`: capacity in bytes by UUID; grants start at grace_until.

    rules: the state and the questions; to ask them changes nothing.
    """

    def __init__(
        self,
        devices: Mapping[str, int],
        make_policy: MakePolicy,
        *,
        first_epoch: int = 1,
        now: int = 0,
        grace_until: int = 0,
        drain_ns: int = DRAIN_NS,
    ):
        self.rules = Rules(devices, make_policy, now, drain_ns)
        self.devices, self.tenants = self.rules.devices, self.rules.tenants
        self.effects = Effects()
        self.turns = Turns(self.rules)
        self.policy_states = PolicyStates(self.rules)
        self.memory = Memory(self.rules, self.effects)
        self.waiters = Waiters(self.rules, self.effects, self.memory, self.turns.forget)
        self.leasing = Leasing(self.rules, self.effects, self.memory, self.waiters, first_epoch)
        self.stages = self.leasing.stages
        self.departures = Departures(self.rules, self.memory, self.waiters, self.stages)
        self.settings = DeviceSettings(
            *(self.rules, self.effects, self.memory, self.waiters, self.stages)
        )
        self.deciding = Deciding(
            *(self.rules, self.effects, self.memory, self.waiters, self.leasing),
            turns=self.turns,
            grace_until=grace_until,
        )

    @property
    def now(self) -> int:
        return self.rules.now

    @property
    def epoch(self) -> int:
        """The epoch of the next lease."""
        return self.leasing.epoch

    @property
    def grace_until(self) -> int:
        """Until when nothing is granted after a restart; 0: that is over."""
        return self.deciding.grace_until

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event; returns what to do, in order. A clock that steps back stands still."""
        self.rules.clock.now = max(now, self.now)
        self.effects.begin()
        self.deciding.pass_grace()
        self._apply(event)
        self.memory.pass_deadlines()
        self.stages.pass_deadlines()
        self.deciding.decide()
        if isinstance(event, Released) and event.tenant in self.tenants:
            self.memory.bring_back(self.tenants[event.tenant])
        self.memory.move()
        self.deciding.plan_wakes()
        return self.effects.actions

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        memory = self.memory
        times = [self.stages.dues.first(), memory.movers.first(), memory.calms.first()]
        times.append(self.deciding.next_deadline())
        return min((time for time in times if time is not None), default=None)

    def usage(self, tenant_id: int, now: int) -> dict[str, Usage]:
        """What the tenant has had of each device up to now. This changes nothing."""
        return self.tenants[tenant_id].usage_at(max(now, self.now), self.devices)

    def refusal(self, event: Opened) -> str | None:
        """Why the policy would not have this tenant; None: it may open. This changes nothing."""
        tenant = _tenant(event)
        return self.rules.policies.of(tenant).admit(self.rules, tenant)

    def policy_state(self, tenant_id: int, now: int) -> PolicyState:
        """What the tenant's policy remembers of it up to now. This changes nothing."""
        return self.policy_states.of(self.tenants[tenant_id], now)

    def understands(self, event: Opened, before: PolicyState) -> bool:
        """Whether the policy of this tenant, if it opens, can use what one remembered before.
        This changes nothing."""
        return self.policy_states.understood(_tenant(event), before)

    # -- events of devices ------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._open(event)
        elif isinstance(event, Rejoined):
            self.deciding.rejoin()
        elif isinstance(event, DrainLimitSet):
            self.rules.drain_ns = event.drain_ns
        elif isinstance(event, WorkMeasured):
            work.measured(event, self.rules)
        elif isinstance(event, OfDevice):
            self.settings.apply(event)
        elif not isinstance(event, Tick) and event.tenant in self.tenants:
            self._apply_tenant(event, self.tenants[event.tenant])

    # -- events of tenants ------------------------------------------------------------

    def _apply_tenant(self, event: OfTenant, tenant: Tenant) -> None:
        if isinstance(event, Requested):
            self._request(tenant)
        elif isinstance(event, Released):
            self.leasing.release(tenant, event.epoch)
        elif isinstance(event, MemoryChanged):
            if self.memory.change(tenant, event) and tenant.lease and tenant.lease.restoring:
                self.stages.go_on(tenant, tenant.lease)
        elif isinstance(event, Restored):
            self._restored(tenant, event.epoch)
        elif isinstance(event, Frozen | Thawed):
            self._freeze(tenant, isinstance(event, Frozen))
        elif isinstance(event, Parked | Unparked):
            self.departures.apply(tenant, event)
        elif isinstance(event, Widened):
            self._widen(tenant, event.gang)
        elif isinstance(event, Closed):
            self._close(tenant)
        elif isinstance(event, SpeedMeasured | LeftUncopied | UsageRestored | StraySeen):
            self._count(tenant, event)
        elif isinstance(event, PolicyRestored):
            self.policy_states.restore(tenant, event)
            self.waiters.place_again(tenant)
        else:
            self.leasing.adopt(tenant, event.epoch, self.deciding.grace_until != 0)

    def _count(
        self, tenant: Tenant, event: SpeedMeasured | LeftUncopied | UsageRestored | StraySeen
    ) -> None:
        """What was measured or counted elsewhere."""
        if isinstance(event, UsageRestored):
            tenant.usage[event.device] = Usage(**event.amounts)
        elif isinstance(event, SpeedMeasured):
            residency = self.devices[event.device].residency
            residency.learn_speed(tenant.id, event.bytes, event.ns)
        elif isinstance(event, LeftUncopied):
            self.memory.left_uncopied(tenant, event)
        elif event.device in tenant.usage:
            tenant.usage[event.device].strays += 1

    def _open(self, event: Opened) -> None:
        unknown = [uuid for uuid in event.gang if uuid not in self.devices]
        if unknown or not event.gang or event.tenant in self.tenants:
            raise ValueError(f"tenant {event.tenant}: known already, or devices {unknown} are not")
        tenant = _tenant(event)
        tenant.usage = {uuid: Usage() for uuid in event.gang}
        tenant.seen_at = self.now
        self.tenants[event.tenant] = tenant
        policy = self.rules.policies.of(tenant)
        policy.opened(tenant)
        self.rules.cohorts.join(tenant, policy.beside(self.rules, tenant))

    def _close(self, tenant: Tenant) -> None:
        self.waiters.end(tenant)
        if tenant.lease is not None:
            self.leasing.end(tenant)
        self.rules.charges.forget(tenant, self.now)
        for uuid in tenant.gang:
            self.devices[uuid].gauge.forget(tenant.id)
        del self.tenants[tenant.id]
        self.rules.policies.of(tenant).closed(tenant.id)
        self.rules.cohorts.leave(tenant)
        self.memory.forget(tenant)

    def _widen(self, tenant: Tenant, gang: tuple[str, ...]) -> None:
        """It needs more devices from its next lease on; the one it has ends for that."""
        for uuid in gang:
            tenant.usage.setdefault(uuid, Usage())
        waits = tenant.waiting
        tenant.wider = gang
        if tenant.lease is not None:
            if not tenant.lease.revoked:
                self.stages.revoke(tenant)
            return
        self.waiters.end(tenant)
        self.leasing.take_wider(tenant)
        if waits:  # behind those who have waited for the new devices already
            self._request(tenant)

    def _request(self, tenant: Tenant) -> None:
        self.departures.requested(tenant)
        if tenant.lease is None and not tenant.waiting:
            self.waiters.begin(tenant)

    def _restored(self, tenant: Tenant, epoch: int) -> None:
        lease = tenant.lease
        if lease is not None and lease.epoch == epoch and lease.restoring:
            self.stages.begin_quantum(tenant, lease)
            for uuid in tenant.gang:
                self.devices[uuid].restoring.discard(tenant.id)
            self.memory.restored(tenant)
            self.effects.changed |= self.rules.cohorts.of[tenant.id].mask

    def _freeze(self, tenant: Tenant, frozen: bool) -> None:
        """It cannot act, or can again. Until then the time is not its debt. Whom its memory kept
        out comes before it: nobody has a turn more for having stood still."""
        tenant.frozen = frozen
        for epoch in tenant.forfeited:
            tenant.forfeited[epoch] = None if frozen else self.now
        self.memory.freeze(tenant, frozen)
        if not frozen:
            self.waiters.let_in(tenant)
        self.waiters.sort(tenant)
        lease = tenant.lease
        if frozen and lease is not None and (lease.revoked or lease.contended):
            self.stages.pass_over(tenant)


def _tenant(event: Opened) -> Tenant:
    return Tenant(event.tenant, event.gang, event.lock, event.quantum_ns, event.swaps)
