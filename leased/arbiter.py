"""Who may use which device, and until when: pure. Events and times in, actions out.

No sockets, no clock, no NVML: the daemon, a simulator and the property tests
drive the same object. All times are ns of one monotonic clock.

Rules. One queue, first come first served. A waiter that cannot be granted
claims its gang's devices, so nobody behind it takes them: gangs are all or
none, and no wide gang starves. A holder that stands in somebody's way is told
once that it is contended (it yields after as much idleness as a handoff would
cost: the ski-rental rule, never more than twice the best in hindsight) and is
revoked when its quantum ends. A quantum is at least HANDOFF_SHARE times the
handoff. Nobody waits: no deadline, no message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from leased.residency import Residency

HANDOFF_SHARE = 10  # a handoff is at most a tenth of the quantum
IDLE_FLOOR_NS = 2_000_000
DRAIN_NS = 10_000_000_000


# -- events ---------------------------------------------------------------------


@dataclass(frozen=True)
class Opened:
    """A tenant exists. gang: device UUIDs; lock: on, off or auto."""

    tenant: int
    gang: tuple[str, ...]
    lock: str
    quantum_ns: int


@dataclass(frozen=True)
class Closed:
    """A tenant is over; whatever it held is free."""

    tenant: int


@dataclass(frozen=True)
class Requested:
    """A process of the tenant waits at its gate."""

    tenant: int


@dataclass(frozen=True)
class Released:
    """Every process of the tenant has closed its gate and drained."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class MemoryChanged:
    """The tenant now has so many bytes on the device; fixed: more of them, which cannot move."""

    tenant: int
    device: str
    bytes: int
    fixed: int = 0


@dataclass(frozen=True)
class RoomChanged:
    """Tenants' allocations can have so many bytes of the device together: the driver took some."""

    device: str
    bytes: int


@dataclass(frozen=True)
class Adopted:
    """After a restart: a process says that it holds this lease."""

    tenant: int
    epoch: int


@dataclass(frozen=True)
class LockSet:
    """The site forces a lock mode on a device; None: what each tenant asked for."""

    device: str
    lock: str | None


@dataclass(frozen=True)
class QuantumSet:
    """The site forces a quantum on a device; None: what each tenant asked for."""

    device: str
    quantum_ns: int | None


@dataclass(frozen=True)
class Tick:
    """Only time has passed."""


Event = (
    Opened
    | Closed
    | Requested
    | Released
    | MemoryChanged
    | RoomChanged
    | Adopted
    | LockSet
    | QuantumSet
    | Tick
)


# -- actions --------------------------------------------------------------------


@dataclass(frozen=True)
class Grant:
    """The tenant has its gang. prefetch: bytes to bring in now, by device."""

    tenant: int
    epoch: int
    shared: bool
    quantum_ns: int
    prefetch: Mapping[str, int]


@dataclass(frozen=True)
class Restore:
    """The tenant goes on with its lease, and may bring back what others displaced meanwhile."""

    tenant: int
    epoch: int
    quantum_ns: int
    prefetch: Mapping[str, int]


@dataclass(frozen=True)
class Contend:
    """Somebody waits for the holder: yield after idle_ns of idleness; None: nobody any more."""

    tenant: int
    epoch: int
    idle_ns: int | None


@dataclass(frozen=True)
class Revoke:
    """The holder must close its gate, drain within drain_ns, and release."""

    tenant: int
    epoch: int
    drain_ns: int


@dataclass(frozen=True)
class Overrun:
    """A revoked holder has not released in time."""

    tenant: int
    epoch: int


Action = Grant | Restore | Contend | Revoke | Overrun


# -- state ----------------------------------------------------------------------


@dataclass
class Usage:
    """What a tenant had of one device; times in ns, see README for the meaning."""

    lease_ns: int = 0
    shared_ns: int = 0
    wait_ns: int = 0
    handoffs: int = 0
    moved_bytes: int = 0
    peak_bytes: int = 0
    overruns: int = 0


@dataclass
class Lease:
    """A granted lease. since: start of its quantum. revoke_at: only while contended."""

    epoch: int
    since: int
    contended: bool = False
    revoke_at: int | None = None
    revoked: bool = False
    drain_until: int | None = None
    overrun_at: int | None = None  # when it should have released


@dataclass
class Tenant:
    id: int
    gang: tuple[str, ...]
    lock: str
    quantum_ns: int
    waiting: bool = False
    lease: Lease | None = None
    debt_ns: int = 0  # by how much it overran; taken off its next quanta
    usage: dict[str, Usage] = field(default_factory=dict)


@dataclass
class Device:
    uuid: str
    residency: Residency
    lock: str | None = None
    quantum_ns: int | None = None
    last_holder: int | None = None


class Arbiter:
    """See the module's text. `devices`: capacity in bytes by UUID; grants start at grace_until."""

    def __init__(
        self,
        devices: Mapping[str, int],
        first_epoch: int = 1,
        now: int = 0,
        grace_until: int = 0,
    ):
        self.devices = {uuid: Device(uuid, Residency(size)) for uuid, size in devices.items()}
        self.tenants: dict[int, Tenant] = {}
        self.queue: list[int] = []
        self.epoch = first_epoch
        self.now = now
        self.grace_until = grace_until

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event; returns what to do, in order. A clock that steps back stands still."""
        self._accrue(max(now, self.now))
        actions: list[Action] = []
        self._apply(event)
        self._separate(actions)
        if isinstance(event, Released):
            self._restore(event.tenant, actions)
        self._serve_queue(actions)
        self._pass_deadlines(actions)
        return actions

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        times = [self.grace_until] if self.queue and self.grace_until > self.now else []
        for tenant in self.tenants.values():
            lease = tenant.lease
            if lease is not None:
                times += [t for t in (lease.revoke_at, lease.drain_until) if t is not None]
        return min(times, default=None)

    def holders(self, device: str) -> list[Tenant]:
        """Tenants that have a lease on the device, longest first."""
        held = [t for t in self.tenants.values() if t.lease is not None and device in t.gang]
        return sorted(held, key=lambda t: t.lease.epoch if t.lease else 0)

    def lock_of(self, tenant: Tenant) -> str:
        """The lock mode that counts: the site's for one of its devices, else the tenant's."""
        forced = [self.devices[uuid].lock for uuid in tenant.gang]
        return next((lock for lock in forced if lock is not None), tenant.lock)

    # -- events -----------------------------------------------------------------

    def _apply(self, event: Event) -> None:
        if isinstance(event, Opened):
            self._open(event)
        elif isinstance(event, LockSet):
            self.devices[event.device].lock = event.lock
        elif isinstance(event, QuantumSet):
            self.devices[event.device].quantum_ns = event.quantum_ns
        elif isinstance(event, RoomChanged):
            self.devices[event.device].residency.room = event.bytes
        elif not isinstance(event, Tick) and event.tenant in self.tenants:
            self._apply_tenant(event, self.tenants[event.tenant])

    def _open(self, event: Opened) -> None:
        unknown = [uuid for uuid in event.gang if uuid not in self.devices]
        if unknown or not event.gang or event.tenant in self.tenants:
            raise ValueError(f"tenant {event.tenant}: known already, or devices {unknown} are not")
        self.tenants[event.tenant] = Tenant(
            event.tenant,
            event.gang,
            event.lock,
            event.quantum_ns,
            usage={uuid: Usage() for uuid in event.gang},
        )

    def _apply_tenant(
        self, event: Closed | Requested | Released | MemoryChanged | Adopted, tenant: Tenant
    ) -> None:
        if isinstance(event, Closed):
            self._close(tenant)
        elif isinstance(event, Requested):
            if tenant.lease is None and not tenant.waiting:
                tenant.waiting = True
                self.queue.append(tenant.id)
        elif isinstance(event, Released):
            self._release(tenant, event.epoch)
        elif isinstance(event, MemoryChanged):
            self._set_memory(tenant, event)
        else:
            self._adopt(tenant, event.epoch)

    def _close(self, tenant: Tenant) -> None:
        del self.tenants[tenant.id]
        if tenant.waiting:
            self.queue.remove(tenant.id)
        for uuid in tenant.gang:
            self.devices[uuid].residency.forget(tenant.id)

    def _release(self, tenant: Tenant, epoch: int) -> None:
        lease = tenant.lease
        if lease is None or lease.epoch != epoch:
            return
        if lease.overrun_at is not None:
            tenant.debt_ns += self.now - lease.overrun_at
        for uuid in tenant.gang:
            self.devices[uuid].last_holder = tenant.id
        tenant.lease = None

    def _set_memory(self, tenant: Tenant, event: MemoryChanged) -> None:
        if event.device not in tenant.gang:
            return
        usage = tenant.usage[event.device]
        residency = self.devices[event.device].residency
        running = tenant.lease is not None
        residency.fixed[tenant.id] = event.fixed
        usage.moved_bytes += residency.set_bytes(tenant.id, event.bytes, running)
        usage.peak_bytes = max(usage.peak_bytes, event.bytes + event.fixed)

    def _adopt(self, tenant: Tenant, epoch: int) -> None:
        """What the process holds, it holds; if others do too, _separate sorts it out."""
        if tenant.lease is None:
            self.epoch = max(self.epoch, epoch + 1)
            tenant.lease = Lease(epoch, self.now)
            if tenant.waiting:
                tenant.waiting = False
                self.queue.remove(tenant.id)
            for uuid in tenant.gang:
                self.devices[uuid].residency.touch(tenant.id)
                self.devices[uuid].last_holder = tenant.id

    # -- decisions --------------------------------------------------------------

    def _can_share(self, tenant: Tenant) -> bool:
        lock = self.lock_of(tenant)
        if lock == "auto":
            return all(self.devices[uuid].residency.fits() for uuid in tenant.gang)
        return lock == "off"

    def _compatible(self, one: Tenant, other: Tenant) -> bool:
        """May both hold a lease on the same device at once?"""
        if "off" in (self.lock_of(one), self.lock_of(other)):
            return True
        return self._can_share(one) and self._can_share(other)

    def _in_the_way(self, tenant: Tenant) -> list[Tenant]:
        """Holders that must release before this tenant can have its gang."""
        gang = set(tenant.gang)
        return [
            other
            for other in self.tenants.values()
            if other is not tenant
            and other.lease is not None
            and gang & set(other.gang)
            and not self._compatible(tenant, other)
        ]

    def _separate(self, actions: list[Action]) -> None:
        """Holders that may no longer run side by side: the first stays, the others go."""
        holders = sorted(
            (t for t in self.tenants.values() if t.lease is not None),
            key=lambda t: t.lease.epoch if t.lease else 0,
        )
        for tenant in holders:
            lease = tenant.lease
            if lease is None or lease.revoked:
                continue
            for other in self._in_the_way(tenant):
                assert other.lease is not None
                if other.lease.epoch < lease.epoch and not other.lease.revoked:
                    other.lease.since = self.now
                    self._revoke(tenant, lease, actions)
                    break

    def _restore(self, released: int, actions: list[Action]) -> None:
        """Who stays when others had to go gets back at the link's speed what they displaced."""
        gone = self.tenants.get(released)
        for tenant in self.tenants.values():
            lease = tenant.lease
            if (
                gone is None
                or lease is None
                or lease.revoked
                or not set(gone.gang) & set(tenant.gang)
            ):
                continue
            devices = {uuid: self.devices[uuid].residency for uuid in tenant.gang}
            if self._can_share(tenant) or not any(r.missing(tenant.id) for r in devices.values()):
                continue
            prefetch = {}
            for uuid, residency in devices.items():
                prefetch[uuid], bytes_out = residency.touch(tenant.id)
                tenant.usage[uuid].moved_bytes += prefetch[uuid] + bytes_out
            actions.append(Restore(tenant.id, lease.epoch, self._quantum(tenant, 0), prefetch))

    def _serve_queue(self, actions: list[Action]) -> None:
        """Grant what can be granted, in order; tell the holders that are in the way."""
        contended: set[int] = set()
        claimed: set[str] = set()
        for tenant_id in list(self.queue):
            tenant = self.tenants[tenant_id]
            blockers = self._in_the_way(tenant)
            free = self.lock_of(tenant) == "off" or not claimed & set(tenant.gang)
            if not blockers and free and self.now >= self.grace_until:
                self._grant(tenant, actions)
                continue
            for blocker in blockers:
                if blocker.id not in contended:
                    contended.add(blocker.id)
                    self._contend(blocker, tenant, actions)
            if self.lock_of(tenant) != "off":
                claimed |= set(tenant.gang)
        self._calm(contended, actions)

    def _grant(self, tenant: Tenant, actions: list[Action]) -> None:
        shared = self._can_share(tenant)
        fits = all(self.devices[uuid].residency.fits() for uuid in tenant.gang)
        prefetch = {}
        for uuid in tenant.gang:
            device = self.devices[uuid]
            bytes_in, bytes_out = device.residency.touch(tenant.id)
            usage = tenant.usage[uuid]
            usage.moved_bytes += bytes_in + bytes_out
            usage.handoffs += device.last_holder not in (None, tenant.id) and not shared
            device.last_holder = tenant.id
            # Beside others that do not fit, a prefetch would only push them out.
            prefetch[uuid] = bytes_in if fits or not shared else 0
        tenant.lease = Lease(self.epoch, self.now)
        tenant.waiting = False
        self.queue.remove(tenant.id)
        self.epoch += 1
        quantum = self._quantum(tenant, 0)
        actions.append(Grant(tenant.id, tenant.lease.epoch, shared, quantum, prefetch))

    def _quantum(self, tenant: Tenant, handoff_ns: int) -> int:
        forced = [self.devices[uuid].quantum_ns for uuid in tenant.gang]
        wanted = next((q for q in forced if q is not None), tenant.quantum_ns)
        return max(wanted, HANDOFF_SHARE * handoff_ns)

    def _contend(self, holder: Tenant, waiter: Tenant, actions: list[Action]) -> None:
        lease = holder.lease
        assert lease is not None
        if lease.contended or lease.revoked:
            return
        cost = max(self.devices[uuid].residency.handoff_ns(waiter.id) for uuid in waiter.gang)
        quantum = self._quantum(holder, cost)
        paid = min(holder.debt_ns, quantum // 2)
        holder.debt_ns -= paid
        lease.contended = True
        lease.revoke_at = max(lease.since + quantum - paid, self.now)
        actions.append(Contend(holder.id, lease.epoch, max(cost, IDLE_FLOOR_NS)))

    def _calm(self, contended: set[int], actions: list[Action]) -> None:
        """Holders that nobody waits for any more have no deadline."""
        for tenant in self.tenants.values():
            lease = tenant.lease
            if lease and lease.contended and not lease.revoked and tenant.id not in contended:
                lease.contended = False
                lease.revoke_at = None
                actions.append(Contend(tenant.id, lease.epoch, None))

    def _revoke(self, tenant: Tenant, lease: Lease, actions: list[Action]) -> None:
        lease.revoked = True
        lease.revoke_at = None
        lease.drain_until = self.now + DRAIN_NS
        actions.append(Revoke(tenant.id, lease.epoch, DRAIN_NS))

    def _pass_deadlines(self, actions: list[Action]) -> None:
        for tenant in self.tenants.values():
            lease = tenant.lease
            if lease is None:
                continue
            if lease.revoke_at is not None and not lease.revoked and lease.revoke_at <= self.now:
                self._revoke(tenant, lease, actions)
            if lease.drain_until is not None and lease.drain_until <= self.now:
                lease.overrun_at, lease.drain_until = lease.drain_until, None
                for uuid in tenant.gang:
                    tenant.usage[uuid].overruns += 1
                actions.append(Overrun(tenant.id, lease.epoch))

    # -- accounting -------------------------------------------------------------

    def _accrue(self, now: int) -> None:
        """Time since the last event goes to holders (divided among them) and waiters."""
        passed = now - self.now
        self.now = now
        if passed <= 0:
            return
        for uuid in self.devices:
            holders = self.holders(uuid)
            for tenant in holders:
                usage = tenant.usage[uuid]
                usage.lease_ns += passed // len(holders)
                usage.shared_ns += passed if len(holders) > 1 else 0
        for tenant_id in self.queue:
            for usage in self.tenants[tenant_id].usage.values():
                usage.wait_ns += passed
