"""Who may use which device, and until when: pure. Events and times in, actions out.

No sockets, no clock, no NVML: the daemon, a simulator and the property tests
drive the same object. All times are ns of one monotonic clock.

Rules.
- First come first served on every device; a gang is leased all or none, when
  it is the first on all its devices.
- A holder that stands in somebody's way is told once that it is contended (it
  yields after as much idleness as a handoff would cost: the ski-rental rule,
  never more than twice the best in hindsight) and is revoked when its quantum
  ends. A quantum is at least HANDOFF_SHARE times the handoff. Nobody waits: no
  deadline, no message.
- A device that the first in its queue cannot use yet, because it waits for
  other devices of its gang, goes to somebody behind it until those are due
  (Slurm calls it backfill). So nothing idles and no gang waits longer: with k
  tenants before it a waiter has its turn after at most k + 1 quanta and drains.
- lock auto: side by side while the memory of all fits; one at a time from the
  moment it does not, and back when it has fitted for a while that doubles with
  every change that was undone soon: it cannot flap.
- Who cannot act (stopped, suspended) holds nobody up: its devices go to others at
  once, and what it has there counts as fixed until it can.
- Who does not release within drain_ns has overrun: the excess comes off its
  next quanta. After as long again its devices go to others beside it, and it
  gets none before it has released.

An event costs as much as it changes; how many wait makes no difference, but
for the at most LOOK_AHEAD waiters that are looked at when a gang holds up a queue, or
that have lock:off beside a holder that shares with nobody.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import replace

from leased.events import (
    Action,
    Adopted,
    Closed,
    Contend,
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
    Thawed,
    Tick,
    Widened,
)
from leased.sharing import LOOK_AHEAD, Sharing
from leased.state import FOREVER, Device, Lease, Tenant, Usage

__all__ = [
    "Action", "Adopted", "Arbiter", "Closed", "Contend", "Device", "DrainSet", "Event", "Evict",
    "Expect", "Forfeit", "Frozen", "Grant", "LockSet", "MemoryChanged", "ModeSet", "Opened",
    "Overrun", "PassedOver", "Preload", "QuantumSet", "Rejoined", "Released", "Requested",
    "Restore", "Restored", "Revoke", "RoomChanged", "Tenant", "Thawed", "Tick", "Usage", "Widened",
]  # fmt: skip

IDLE_FLOOR_NS = 2_000_000
DRAIN_NS = 10_000_000_000
RESTORE_NS = 30_000_000_000  # for memory that is swapped to come back, before the quantum begins


class Arbiter(Sharing):
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

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event; returns what to do, in order. A clock that steps back stands still."""
        self.now = max(now, self.now)
        self._actions, self._granted = [], {}
        if self.grace_until and self.now >= self.grace_until:
            self._rejoin()
        self._apply(event)
        self._pass_deadlines()
        self._decide()
        if isinstance(event, Released):
            self._restore(event.tenant)
        self._preload()
        self._evict()
        return self._actions

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        times = [device.fits_at for device in self.devices.values() if device.fits_at is not None]
        firsts = (self._dues.first(), self._movers.first())
        times += [first for first in firsts if first is not None]
        if self.grace_until:
            times.append(self.grace_until)
        return min(times, default=None)

    def settle(self, now: int, tenants: Collection[int] | None = None) -> None:
        """Bring the usage of every tenant, or of these, up to now."""
        self.now = max(now, self.now)
        for tenant_id in self.tenants if tenants is None else tenants:
            if tenant_id in self.tenants:
                self.tenants[tenant_id].settle(self.now, self.devices)

    # -- events -----------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._open(event)
        elif isinstance(event, Rejoined):
            self._rejoin()
        elif isinstance(event, LockSet | QuantumSet | DrainSet | ModeSet | RoomChanged):
            self._set(self.devices[event.device], event)
        elif not isinstance(event, Tick) and event.tenant in self.tenants:
            self._apply_tenant(event, self.tenants[event.tenant])

    def _set(
        self, device: Device, event: LockSet | QuantumSet | DrainSet | ModeSet | RoomChanged
    ) -> None:
        if isinstance(event, LockSet):
            device.lock = event.lock
            self._sort_out_unlocked()
        elif isinstance(event, QuantumSet):
            device.quantum_ns = event.quantum_ns
        elif isinstance(event, DrainSet):
            device.drained = event.drained
        elif isinstance(event, ModeSet):
            device.exclusive, device.chosen_why = event.exclusive, event.why
            device.tried_quantum_ns = event.quantum_ns
        else:
            device.residency.room = event.bytes
            device.residency.squeeze()
            self._refit(device)
        if isinstance(event, QuantumSet | ModeSet):
            self._plan_ends(device)
        self._reconsider(device)

    def _sort_out_unlocked(self) -> None:
        """A lock that the site forces counts for gangs on other devices too."""
        for device in self.devices.values():
            off = ((t.id, t) for t in device.queue.values() if self.lock_of(t) == "off")
            device.unlocked = OrderedDict(off)

    def _plan_ends(self, device: Device) -> None:
        for holder in device.holders.values():
            lease = holder.lease
            if lease is not None and lease.contended and not lease.revoked:
                self._plan_end(holder, lease)

    def _open(self, event: Opened) -> None:
        unknown = [uuid for uuid in event.gang if uuid not in self.devices]
        if unknown or not event.gang or event.tenant in self.tenants:
            raise ValueError(f"tenant {event.tenant}: known already, or devices {unknown} are not")
        self.tenants[event.tenant] = Tenant(
            event.tenant,
            event.gang,
            event.lock,
            event.quantum_ns,
            event.swaps,
            usage={uuid: Usage() for uuid in event.gang},
        )

    def _widen(self, tenant: Tenant, gang: tuple[str, ...]) -> None:
        """It needs more devices from its next lease on; the one it has ends for that."""
        for uuid in gang:
            tenant.usage.setdefault(uuid, Usage())
        waits = tenant.waiting
        tenant.wider = gang
        if tenant.lease is not None:
            if not tenant.lease.revoked:
                self._revoke(tenant, tenant.lease)
            return
        self._end_wait(tenant)
        tenant.take_wider()
        if waits:  # behind those who have waited for the new devices already
            self._request(tenant)

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
        | Adopted,
        tenant: Tenant,
    ) -> None:
        if isinstance(event, Widened):
            self._widen(tenant, event.gang)
        elif isinstance(event, Frozen | Thawed):
            self._freeze(tenant, isinstance(event, Frozen))
        elif isinstance(event, Closed):
            self._close(tenant)
        elif isinstance(event, Requested):
            self._request(tenant)
        elif isinstance(event, Restored):
            self._begin_quantum(tenant, event.epoch)
        elif isinstance(event, Released):
            self._release(tenant, event.epoch)
        elif isinstance(event, MemoryChanged):
            self._set_memory(tenant, event)
        else:
            self._adopt(tenant, event.epoch)

    def _close(self, tenant: Tenant) -> None:
        self._end_wait(tenant)
        self._end_lease(tenant)
        del self.tenants[tenant.id]
        for uuid in tenant.usage:
            if uuid in self.devices:  # not so a GPU that was lost when this daemon started
                self.devices[uuid].residency.forget(tenant.id)
                self._movers.put((tenant.id, uuid), None)
                self._refit(self.devices[uuid])

    def _request(self, tenant: Tenant) -> None:
        if tenant.forfeited:
            tenant.asks = True
        elif tenant.lease is None and not tenant.waiting:
            self.arrivals += 1
            tenant.arrival, tenant.waiting, tenant.waits_since = self.arrivals, True, self.now
            tenant.asked_at = self.now
            for uuid in tenant.gang:
                self.devices[uuid].line_up(tenant, self.lock_of(tenant) == "off")
                self.devices[uuid].residency.wait(tenant.id, tenant.arrival)
                self._changed[uuid] = None

    def _end_wait(self, tenant: Tenant) -> None:
        if tenant.waiting:
            tenant.settle(self.now, self.devices)
            tenant.waiting = False
            for uuid in tenant.gang:
                self.devices[uuid].leave_line(tenant.id)
                self.devices[uuid].residency.wait(tenant.id, 0)
                self._changed[uuid] = None

    def _pass_over(self, holder: Tenant, lease: Lease) -> None:
        """It cannot give back what others wait for: they have it, and it hears of it later.
        It has forfeited nothing: no work of it is under way."""
        if not lease.revoked:
            self._revoke(holder, lease)
        self._end_lease(holder)
        self._actions.append(PassedOver(holder.id, lease.epoch))

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
            if lease.overrun_at is not None:
                tenant.debt_ns += self.now - lease.overrun_at
            self._end_lease(tenant)

    def _end_lease(self, tenant: Tenant) -> None:
        if tenant.lease is None:
            return
        tenant.settle(self.now, self.devices)
        for uuid in tenant.gang:
            device = self.devices[uuid]
            device.meter.advance(self.now, len(device.holders))
            del device.holders[tenant.id]
            device.last_holder = tenant.id
            device.residency.rest(tenant.id)
            self._watch(tenant.id, device)
            self._change(device)
        tenant.lease = None
        self._dues.put(tenant.id, None)
        tenant.take_wider()

    def _hold(self, tenant: Tenant, epoch: int) -> Lease:
        tenant.lease = Lease(epoch, self.now)
        tenant.granted = epoch
        for uuid in tenant.gang:
            device = self.devices[uuid]
            device.meter.advance(self.now, len(device.holders))
            device.holders[tenant.id] = tenant
            tenant.read[uuid] = device.meter.each, device.meter.shared
            device.last_holder = tenant.id
            self._change(device)
        return tenant.lease

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
        for uuid in tenant.gang:
            self.devices[uuid].residency.touch(tenant.id)
            self._movers.put((tenant.id, uuid), None)
        for other in list(self.in_the_way(tenant)):
            loser = min(tenant, other, key=lambda t: t.lease.epoch if t.lease else 0)
            if loser.lease and not loser.lease.revoked:
                self._revoke(loser, loser.lease)

    def _rejoin(self) -> None:
        """The grace after a restart is over: from now on there are grants."""
        self.grace_until = 0
        self._changed |= dict.fromkeys(self.devices)

    # -- who is next --------------------------------------------------------------

    def _decide(self) -> None:
        """Separate, contend and grant on every device where something changed."""
        while self._changed:
            changed = [self.devices[uuid] for uuid in self._changed]
            self._changed = {}
            for device in changed:
                self._separate(device)
            for device in changed:  # before the grants: those ask when it will be free
                self._tell_holders(device)
            for device in changed if not self.grace_until else ():
                self._serve(device)

    def _change(self, device: Device) -> None:
        """Who has it until when is news, also for those behind gangs that wait for it."""
        self._changed[device.uuid] = None
        for waiter in itertools.islice(device.gangs.values(), LOOK_AHEAD):
            self._changed |= dict.fromkeys(waiter.gang)

    def _serve(self, device: Device) -> None:
        """Grant what can be granted of the device, in order."""
        while not device.drained:
            # Beside a holder that shares with nobody only those may run who heed no lock.
            alone = any(not self.can_share(holder) for holder in device.holders.values())
            line = device.unlocked if alone else device.queue
            for tenant in itertools.islice(line.values(), LOOK_AHEAD):
                if self.is_free(tenant):
                    until = self.free_until(tenant)
                    if until == FOREVER or until - self.now >= self.worth(tenant):
                        self._grant(tenant, until)
                        break
            else:
                return

    def _grant(self, tenant: Tenant, until: int) -> None:
        shared = self.can_share(tenant)
        fits = all(self.devices[uuid].fits for uuid in tenant.gang)
        prefetch = {}
        for uuid in tenant.gang:
            device = self.devices[uuid]
            bytes_in, bytes_out = device.residency.touch(tenant.id)
            usage = tenant.usage[uuid]
            usage.moved_bytes += bytes_in + bytes_out
            usage.handoffs += device.last_holder not in (None, tenant.id) and not shared
            # Beside others that do not fit, a prefetch would only push them out.
            prefetch[uuid] = bytes_in if fits or not shared else 0
            self._movers.put((tenant.id, uuid), None)
        self._end_wait(tenant)
        lease = self._hold(tenant, self.epoch)
        lease.restoring = tenant.swaps
        self.epoch += 1
        quantum = self.quantum(tenant, 0)
        self._granted[tenant.id] = len(self._actions)
        self._actions.append(Grant(tenant.id, lease.epoch, shared, quantum, prefetch))
        if until != FOREVER:
            self._contend(tenant, 0, until)

    # -- telling the holders ------------------------------------------------------

    def _tell_holders(self, device: Device) -> None:
        for holder in list(device.holders.values()):
            self._tell_holder(holder)

    def _tell_holder(self, holder: Tenant) -> None:
        """It is contended from the moment that somebody waits for it, until nobody does."""
        lease = holder.lease
        if lease is None or (lease.revoked and not holder.frozen):
            return
        drained = self.drained(holder)
        waiter = self.waiter_for(holder)
        if holder.frozen:
            if waiter or drained or lease.revoked:
                self._pass_over(holder, lease)
            return
        if not lease.contended and (waiter or drained):
            self._contend(holder, self.cost(waiter) if waiter else 0, FOREVER)
            if waiter and holder.swaps:
                self._expect(holder, waiter)
        elif lease.contended and not (waiter or drained):
            lease.contended = False
            self._set_due(holder, lease, None)
            self._tell(Contend(holder.id, lease.epoch, None))
        elif lease.contended and waiter and 2 * self.cost(waiter) < lease.cost_ns:
            # Another one is first now, for whom the quantum need not be as long.
            holder.debt_ns += lease.paid_ns
            self._contend(holder, self.cost(waiter), lease.until)

    def _contend(self, holder: Tenant, cost: int, until: int) -> None:
        lease = holder.lease
        assert lease is not None
        lease.contended, lease.cost_ns, lease.until = True, cost, until
        lease.paid_ns = min(holder.debt_ns, self.quantum(holder, cost) // 2)
        holder.debt_ns -= lease.paid_ns
        self._tell(Contend(holder.id, lease.epoch, max(cost, IDLE_FLOOR_NS)))
        self._plan_end(holder, lease)
        for uuid in holder.gang:
            self._change(self.devices[uuid])
        if lease.due is not None and lease.due <= self.now:
            self._revoke(holder, lease)

    def _expect(self, holder: Tenant, waiter: Tenant) -> None:
        for uuid in holder.gang:
            residency = self.devices[uuid].residency
            leaves = min(residency.displaced(waiter.id), residency.resident_of(holder.id))
            if leaves:
                self._actions.append(Expect(holder.id, uuid, leaves))

    def _begin_quantum(self, tenant: Tenant, epoch: int) -> None:
        lease = tenant.lease
        if lease is not None and lease.epoch == epoch and lease.restoring:
            lease.restoring, lease.since = False, self.now
            if lease.contended and not lease.revoked:
                self._plan_end(tenant, lease)

    def _plan_end(self, holder: Tenant, lease: Lease) -> None:
        """A contended lease ends with its quantum, however much of it is over."""
        end = lease.since + self.quantum(holder, lease.cost_ns) - lease.paid_ns
        if lease.restoring:
            end += RESTORE_NS
        self._set_due(holder, lease, min(max(end, self.now), lease.until))

    def _tell(self, contend: Contend) -> None:
        """A holder that is only now granted is told in the same breath."""
        place = self._granted.get(contend.tenant)
        if place is None:
            self._actions.append(contend)
        else:
            grant = self._actions[place]
            assert isinstance(grant, Grant)
            self._actions[place] = replace(grant, idle_ns=contend.idle_ns)

    # -- time ---------------------------------------------------------------------

    def _pass_deadlines(self) -> None:
        for device in self.devices.values():
            self._pass_calm(device)
        self._pass_movers()
        while (tenant_id := self._dues.pop(self.now)) is not None:
            self._pass_due(self.tenants[tenant_id])

    def _pass_due(self, tenant: Tenant) -> None:
        lease = tenant.lease
        assert lease is not None
        if not lease.revoked:
            self._revoke(tenant, lease)
        elif lease.overrun_at is None:
            lease.overrun_at = lease.due
            self._set_due(tenant, lease, self.now + self.drain_ns)
            for uuid in tenant.gang:
                tenant.usage[uuid].overruns += 1
                self._change(self.devices[uuid])
            self._actions.append(Overrun(tenant.id, lease.epoch))
        else:
            tenant.forfeited = lease.epoch, lease.overrun_at
            self._end_lease(tenant)
            self._actions.append(Forfeit(tenant.id, lease.epoch))
