"""Who may use which device, and until when: pure. Events and times in, actions out.

No sockets, no clock, no NVML: the daemon, a simulator and the property tests
drive the same object. All times are ns of one monotonic clock.

Rules.
- First come first served on every device; a gang is leased all or none. Who waits
  and could not run (its device is drained, it cannot act, it swaps and others have
  so much there that cannot move) holds nobody up, and has come when it can again.
- A holder that stands in somebody's way is told once that it is contended (it
  yields after as much idleness as a handoff would cost: the ski-rental rule,
  never more than twice the best in hindsight) and is revoked when its quantum
  ends. A quantum is at least HANDOFF_SHARE times the handoff. Nobody waits: no
  deadline, no message.
- Devices that the first in the queue cannot use yet, because it waits for others
  of its gang, go to those behind it until it can (core/turns.py). So nothing idles,
  and with k tenants before it a waiter that could run has its turn after at most
  k + 1 times a quantum, RESTORE_NS where jobs swap, and four times drain_ns.
- lock auto: side by side while the memory of all fits; one at a time from the
  moment it does not, and back when it has fitted for a while that doubles with
  every change that was undone soon: it cannot flap.
- Who cannot act (stopped, suspended) holds nobody up: its devices go to others at
  once, and what it has there stays until it has left.
- Who does not release within drain_ns has overrun: the excess comes off its
  next quanta. After as long again its devices go to others beside it, and it
  gets none before it has released.

An event costs as much as it changes; how many wait or hold makes no difference,
but for how many different gangs, locks and kinds of memory there are among them.
"""

from __future__ import annotations

from collections.abc import Mapping

from leased.core.effects import Effects
from leased.core.events import (
    Action,
    Adopted,
    Closed,
    Contend,
    DrainLimitSet,
    DrainSet,
    Event,
    Evict,
    Expect,
    Forfeit,
    Frozen,
    Grant,
    LockSet,
    MemoryChanged,
    ModeSet,
    Opened,
    Overrun,
    PassedOver,
    Preload,
    QuantumSet,
    Rejoined,
    Released,
    Requested,
    Restore,
    Restored,
    Revoke,
    RoomChanged,
    SpeedKnown,
    SpeedMeasured,
    StraySeen,
    Thawed,
    Tick,
    UsageRestored,
    Widened,
)
from leased.core.memory import Memory
from leased.core.rules import Rules
from leased.core.speed import Speed
from leased.core.stages import IDLE_FLOOR_NS, RESTORE_NS, Stages
from leased.core.state import FOREVER, Device, Lease, Tenant, Usage
from leased.core.turns import Turns

__all__ = [
    "IDLE_FLOOR_NS", "RESTORE_NS",
    "Action", "Adopted", "Arbiter", "Closed", "Contend", "Device", "DrainLimitSet", "DrainSet",
    "Event", "Evict", "Expect", "Forfeit", "Frozen", "Grant", "LockSet", "MemoryChanged", "ModeSet",
    "Opened", "Overrun", "PassedOver", "Preload", "QuantumSet", "Rejoined", "Released", "Requested",
    "Restore", "Restored", "Revoke", "RoomChanged", "SpeedKnown", "SpeedMeasured", "StraySeen",
    "Tenant", "Thawed", "Tick", "Usage", "UsageRestored", "Widened",
]  # fmt: skip

DRAIN_NS = 10_000_000_000
OF_DEVICE = LockSet, QuantumSet, DrainSet, ModeSet, RoomChanged, SpeedKnown


class Arbiter(Rules):
    """See the module's text. `devices`: capacity in bytes by UUID; grants start at grace_until."""

    def __init__(
        self,
        devices: Mapping[str, int],
        first_epoch: int = 1,
        now: int = 0,
        grace_until: int = 0,
        drain_ns: int = DRAIN_NS,
    ):
        super().__init__(devices, now, drain_ns)
        self.epoch = self.first_epoch = first_epoch
        self.grace_until = grace_until
        self.arrivals = 0
        self.effects = Effects()
        self.turns = Turns(self)
        self.memory = Memory(self, self.effects)
        self.stages = Stages(self, self.effects, self._end_lease)

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event; returns what to do, in order. A clock that steps back stands still."""
        self.now = max(now, self.now)
        self.effects.begin()
        if self.grace_until and self.now >= self.grace_until:
            self._rejoin()
        self._apply(event)
        self.memory.pass_deadlines()
        self.stages.pass_deadlines()
        self._decide()
        if isinstance(event, Released) and event.tenant in self.tenants:
            self.memory.bring_back(self.tenants[event.tenant])
        self.memory.move()
        return self.effects.actions

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        memory = self.memory
        times = [self.stages.dues.first(), memory.movers.first(), memory.calms.first()]
        return min((t for t in (*times, self.grace_until or None) if t is not None), default=None)

    def usage(self, tenant_id: int, now: int) -> dict[str, Usage]:
        """What the tenant has had of each device up to now. This changes nothing."""
        return self.tenants[tenant_id].usage_at(max(now, self.now), self.devices)

    def free_until(self, tenant: Tenant) -> int:
        """How long it may hold its gang without holding up those who came before it."""
        fronts = [f for f in self.turns.fronts.values() if f.tenant.arrival < tenant.arrival]
        return self.turns.gap(self.cohorts.of[tenant.id], fronts)

    # -- events of devices ------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._open(event)
        elif isinstance(event, Rejoined):
            self._rejoin()
        elif isinstance(event, DrainLimitSet):
            self.drain_ns = event.drain_ns
        elif isinstance(event, OF_DEVICE):
            self._set(self.devices[event.device], event)
        elif not isinstance(event, Tick) and event.tenant in self.tenants:
            self._apply_tenant(event, self.tenants[event.tenant])

    def _set(
        self,
        device: Device,
        event: LockSet | QuantumSet | DrainSet | ModeSet | RoomChanged | SpeedKnown,
    ) -> None:
        if isinstance(event, SpeedKnown):
            speed = Speed(event.bytes_s, event.seen, event.said)
            device.residency.set_speed(speed, event.swaps)
        elif isinstance(event, LockSet):
            device.lock = event.lock
        elif isinstance(event, QuantumSet):
            device.quantum_ns = event.quantum_ns
        elif isinstance(event, DrainSet):
            device.drained = event.drained
            self.drained_mask = self.cohorts.mask(u for u, d in self.devices.items() if d.drained)
            for tenant in list(device.queue.values()):
                self._sort(tenant)
        elif isinstance(event, ModeSet):
            device.exclusive, device.chosen_why = event.exclusive, event.why
            device.turn_ns = event.quantum_ns
        else:
            self.memory.set_room(device, event.bytes)
        if isinstance(event, QuantumSet | ModeSet):
            self.stages.plan_ends(device)
        if isinstance(event, LockSet | ModeSet):
            self.cohorts.changed()
            self.effects.unsettled = True
        self.effects.changed |= self.cohorts.bit[device.uuid]

    def _rejoin(self) -> None:
        """The grace after a restart is over: from now on there are grants."""
        self.grace_until = 0
        self.effects.changed |= self.cohorts.mask(self.devices)

    # -- events of tenants ------------------------------------------------------------

    def _apply_tenant(
        self,
        event: Widened
        | Closed
        | Requested
        | Frozen
        | Thawed
        | Restored
        | Released
        | MemoryChanged
        | SpeedMeasured
        | UsageRestored
        | StraySeen
        | Adopted,
        tenant: Tenant,
    ) -> None:
        if isinstance(event, Requested):
            self._request(tenant)
        elif isinstance(event, Released):
            self._release(tenant, event.epoch)
        elif isinstance(event, MemoryChanged):
            if self.memory.change(tenant, event) and tenant.lease and tenant.lease.restoring:
                self.stages.go_on(tenant, tenant.lease)
        elif isinstance(event, Restored):
            self._restored(tenant, event.epoch)
        elif isinstance(event, Frozen | Thawed):
            self._freeze(tenant, isinstance(event, Frozen))
        elif isinstance(event, Widened):
            self._widen(tenant, event.gang)
        elif isinstance(event, Closed):
            self._close(tenant)
        elif isinstance(event, SpeedMeasured | UsageRestored | StraySeen):
            self._count(tenant, event)
        else:
            self._adopt(tenant, event.epoch)

    def _count(self, tenant: Tenant, event: SpeedMeasured | UsageRestored | StraySeen) -> None:
        """What was measured or counted elsewhere."""
        if isinstance(event, UsageRestored):
            tenant.usage[event.device] = Usage(**event.amounts)
        elif isinstance(event, SpeedMeasured):
            residency = self.devices[event.device].residency
            residency.measured(tenant.id, event.bytes, event.ns)
        elif event.device in tenant.usage:
            tenant.usage[event.device].strays += 1

    def _open(self, event: Opened) -> None:
        unknown = [uuid for uuid in event.gang if uuid not in self.devices]
        if unknown or not event.gang or event.tenant in self.tenants:
            raise ValueError(f"tenant {event.tenant}: known already, or devices {unknown} are not")
        usage = {uuid: Usage() for uuid in event.gang}
        tenant = Tenant(
            event.tenant, event.gang, event.lock, event.quantum_ns, event.swaps, usage=usage
        )
        self.tenants[event.tenant] = tenant
        self.cohorts.join(tenant)

    def _close(self, tenant: Tenant) -> None:
        self._end_wait(tenant)
        if tenant.lease is not None:
            self._end_lease(tenant)
        del self.tenants[tenant.id]
        self.cohorts.leave(tenant)
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
        self._end_wait(tenant)
        self._take_wider(tenant)
        if waits:  # behind those who have waited for the new devices already
            self._request(tenant)

    def _take_wider(self, tenant: Tenant) -> None:
        """Without a lease it has no part of a gang: from now on it needs the wider one."""
        if tenant.wider:
            self.cohorts.leave(tenant)
            tenant.gang, tenant.wider = tenant.wider, ()
            self.cohorts.join(tenant)

    def _request(self, tenant: Tenant) -> None:
        if tenant.forfeited:
            tenant.asks = True
        elif tenant.lease is None and not tenant.waiting:
            tenant.waiting, tenant.waits_since, tenant.asked_at = True, self.now, self.now
            self._arrive(tenant)
            self._sort(tenant)

    def _arrive(self, tenant: Tenant) -> None:
        """It is the last of those who wait for its devices."""
        self.arrivals += 1
        tenant.arrival = self.arrivals
        for uuid in tenant.gang:
            queue = self.devices[uuid].queue
            queue[tenant.id] = tenant
            queue.move_to_end(tenant.id)

    def _sort(self, tenant: Tenant) -> None:
        """Whether a waiter could run has changed, perhaps. Who could not has lost its place."""
        cohort = self.cohorts.of[tenant.id]
        lines_up = tenant.waiting and not self.withheld(tenant)
        if lines_up == (tenant.id in cohort.waiting):
            return
        if lines_up:
            if tenant.arrival != self.arrivals:
                self._arrive(tenant)
            self.cohorts.line_up(tenant)
        else:
            self.cohorts.leave_line(tenant)
            self.turns.forget(tenant.id)
        self.memory.wait(tenant, tenant.arrival if lines_up else 0)
        self.effects.changed |= cohort.mask

    def _end_wait(self, tenant: Tenant) -> None:
        if tenant.waiting:
            tenant.settle(self.now, self.devices)
            tenant.waiting = False
            for uuid in tenant.gang:
                del self.devices[uuid].queue[tenant.id]
            self._sort(tenant)

    def _restored(self, tenant: Tenant, epoch: int) -> None:
        lease = tenant.lease
        if lease is not None and lease.epoch == epoch and lease.restoring:
            self.stages.begin_quantum(tenant, lease)
            for uuid in tenant.gang:
                self.devices[uuid].restoring.discard(tenant.id)
            self.memory.restored(tenant)
            self.effects.changed |= self.cohorts.of[tenant.id].mask

    def _freeze(self, tenant: Tenant, frozen: bool) -> None:
        """It cannot act, or can again. Until then the time is not its debt."""
        tenant.frozen = frozen
        if tenant.forfeited:
            tenant.forfeited = tenant.forfeited[0], None if frozen else self.now
        self.memory.freeze(tenant, frozen)
        self._sort(tenant)
        lease = tenant.lease
        if frozen and lease is not None and (lease.revoked or lease.contended):
            self.stages.pass_over(tenant)

    def _release(self, tenant: Tenant, epoch: int) -> None:
        lease = tenant.lease
        if tenant.forfeited and tenant.forfeited[0] == epoch:
            if tenant.forfeited[1] is not None:
                tenant.debt_ns += self.now - tenant.forfeited[1]
            tenant.forfeited = None
            if tenant.asks:
                tenant.asks = False
                self._request(tenant)
        elif lease is not None and lease.epoch == epoch:
            if lease.revoked:
                tenant.drained_ns = self.now - lease.revoked_at
            if lease.overrun_at is not None:
                tenant.debt_ns += self.now - lease.overrun_at
            self._end_lease(tenant)

    def _adopt(self, tenant: Tenant, epoch: int) -> None:
        """What a process held before a restart it holds, and later what nobody else has.

        Where two say so, the one whose lease was granted later had it by right.
        """
        known = epoch == tenant.granted or 0 < epoch < self.first_epoch
        if tenant.lease is not None or tenant.forfeited or not known:
            return
        if not self.grace_until and not self.is_free(tenant):
            return
        self._end_wait(tenant)
        self._hold(tenant, epoch)
        self.memory.work(tenant)
        for other in list(self.in_the_way(tenant)):
            loser = min(tenant, other, key=lambda t: t.lease.epoch if t.lease else 0)
            if loser.lease and not loser.lease.revoked:
                self.stages.revoke(loser)

    # -- leases -----------------------------------------------------------------------

    def _hold(self, tenant: Tenant, epoch: int) -> Lease:
        tenant.lease = Lease(epoch, self.now, self.now, self.now)
        tenant.granted = epoch
        self.cohorts.hold(tenant)
        self.effects.changed |= self.cohorts.of[tenant.id].mask
        for uuid in tenant.gang:
            device = self.devices[uuid]
            device.meter.advance(self.now, len(device.holders))
            device.holders[tenant.id] = tenant
            tenant.read[uuid] = device.meter.each, device.meter.shared
            device.last_holder = tenant.id
        return tenant.lease

    def _end_lease(self, tenant: Tenant) -> None:
        tenant.settle(self.now, self.devices)
        self.effects.changed |= self.cohorts.of[tenant.id].mask
        self.cohorts.end(tenant)
        for uuid in tenant.gang:
            device = self.devices[uuid]
            device.meter.advance(self.now, len(device.holders))
            del device.holders[tenant.id]
            device.restoring.discard(tenant.id)
            device.last_holder = tenant.id
        self.memory.rest(tenant)
        tenant.lease = None
        self.stages.dues.put(tenant.id, None)
        self._take_wider(tenant)

    def _decide(self) -> None:
        """Separate, contend and grant on every device where something has changed."""
        effects = self.effects
        while effects.changed or self.memory.affected:
            for tenant in self.memory.take_affected() if self.memory.affected else ():
                self._make_way(tenant)
            mask, effects.changed = self.cohorts.reached(effects.changed), 0
            if effects.unsettled:
                effects.unsettled = False
                for device in self.devices.values():
                    self.stages.separate(device)
            holding, line = self.cohorts.holders(mask), self.cohorts.in_line(mask)
            self.stages.tell(holding, line)  # before the grants: those ask when it will be free
            if not line or self.grace_until:
                continue
            found = self.turns.next(mask, holding, line)
            if found is not None:
                self._grant(*found)
                effects.changed |= mask  # there may be more to grant

    def _make_way(self, tenant: Tenant) -> None:
        """Who was granted for memory that turns out to stay can never have its own back."""
        self._sort(tenant)
        lease = tenant.lease
        if lease and lease.restoring and not lease.revoked and self.crowded_out(tenant):
            self.stages.revoke(tenant)

    def _grant(self, tenant: Tenant, until: int) -> None:
        shared = self.can_share(tenant)
        fits = all(self.devices[uuid].fits for uuid in tenant.gang)
        handoffs = {uuid: self.devices[uuid].last_holder for uuid in tenant.gang}
        self._end_wait(tenant)
        prefetch = {}
        for uuid, (bytes_in, bytes_out) in self.memory.work(tenant).items():
            usage = tenant.usage[uuid]
            usage.moved_bytes += bytes_in + bytes_out
            usage.handoffs += handoffs[uuid] not in (None, tenant.id) and not shared
            # Beside others that do not fit, a prefetch would only push them out.
            prefetch[uuid] = bytes_in if fits or not shared else 0
        lease = self._hold(tenant, self.epoch)
        if tenant.swaps:
            lease.restoring = True
            for uuid in tenant.gang:
                self.devices[uuid].restoring.add(tenant.id)
        self.epoch += 1
        quantum = self.quantum(tenant, 0)
        self.effects.do(Grant(tenant.id, lease.epoch, shared, quantum, prefetch))
        if until != FOREVER:
            self.stages.contend(tenant, 0, until)
