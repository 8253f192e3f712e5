"""The arbiter's state, and what its rules say of it: who may hold, who is in the way, how long.

To ask changes nothing. This is also what a policy may look at (View in leased/core/policy.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from leased.core import classes, orders
from leased.core.charges import Charges
from leased.core.policies import Policies
from leased.core.policy import MakePolicy, Spec
from leased.core.shares import Shares
from leased.core.state import ALONE, FREE, SHARE, Device, Tenant
from leased.memory.residency import Part, Residency, Whereabouts, handoff_ns
from leased.usage.lease_clock import LeaseClock

HANDOFF_SHARE = 20  # a handoff is at most a twentieth of the quantum
LONGEST_STRETCH_NS = 300_000_000_000  # whatever handoffs are said to take
SHORT_NS = 5_000_000_000  # a short turn, see short_turns.py
BACKFILL_NS = 20_000_000  # less is not worth a grant
GRACE_MORE_NS = 4_000_000_000  # by which the grace after a restart grows at most
# What may have changed: shares, or the policies that the site has chosen; which devices gangs
# connect; whose work time slices can divide.
NEW_SHARES, NEW_GANGS, NEW_CONTROLS = 1, 2, 4
NOWHERE: Mapping[str, Part] = {}
MOVE_PATIENCE_NS = 5_000_000_000  # for memory that is to leave or to come back: until some has


class Rules:
    """devices: capacity in bytes by UUID. Times are ns. grace_until: nothing is granted before,
    since processes may still say what they held before a restart; 0: that is over."""

    def __init__(
        self,
        devices: Mapping[str, int],
        make_policy: MakePolicy,
        now: int,
        drain_ns: int,
        grace_until: int,
    ):
        self.now = now
        self.where = Whereabouts(now)
        self.devices = {
            uuid: Device(uuid, 1 << n, Residency(size, uuid, self.where), LeaseClock(now))
            for n, (uuid, size) in enumerate(devices.items())
        }
        self.tenants: dict[int, Tenant] = {}
        self.chains: dict[str, dict[int, Tenant]] = {}  # those of each that is named
        self.policies = Policies(make_policy, {u: d.bit for u, d in self.devices.items()})
        self.shares = Shares()
        self.charges = Charges(self.devices, self.policies)
        self._single = {device.bit: (device,) for device in self.devices.values()}
        self.all_mask = (1 << len(self.devices)) - 1
        # Devices with holders that heed locks, and with those that run beside no other of these.
        self.locked_mask = self.alone_mask = 0
        self.drained_mask = 0
        # Devices of tenants whose work time slices cannot divide.
        self.uncontrolled_mask = 0
        self.news = 0  # of NEW_SHARES, NEW_GANGS, NEW_CONTROLS, what has to be followed
        self.online = 0  # how many tenants are online
        self.mixed_mask = 0  # devices on which orders of several policies would meet
        self.free: dict[int, Tenant] = {}  # in the line, but held up by nobody
        self.in_line = 0  # how many are in the line
        self.lined: dict[int, Tenant] = {}  # of those the ones that were ordered to be there
        self.untold: dict[int, Tenant] = {}  # with a lease that they have not been told of
        # By tenant, the devices of those in the line that heed locks and have several, as bits.
        self.gangs_in_line: dict[int, int] = {}
        self.drain_ns = drain_ns
        self.give_grace(grace_until)

    def give_grace(self, until: int) -> None:
        """0: none."""
        self.grace_until, self.grace_most = until, until + GRACE_MORE_NS

    def limit_drains(self, drain_ns: int) -> None:
        """A holder that is revoked from now on must release within so long."""
        self.drain_ns = drain_ns

    def mask(self, gang: Iterable[str]) -> int:
        """These devices as bits of a number."""
        mask = 0
        for uuid in gang:
            mask |= self.devices[uuid].bit
        return mask

    def on(self, mask: int) -> Sequence[Device]:
        """The devices of the mask."""
        single = self._single.get(mask)
        return single or [device for device in self.devices.values() if device.bit & mask]

    def reached(self, mask: int) -> int:
        """These devices, and those that waiters for one of them want too: a waiter that cannot
        run yet keeps others from all of its devices, and its handoff may cost less now."""
        reached = mask
        for gang in self.gangs_in_line.values():
            if gang & mask:
                reached |= gang
        return reached

    def connected(self, mask: int) -> int:
        """These devices and all that gangs connect with them, one after the other."""
        masks = {tenant.mask for tenant in self.tenants.values()}
        before = 0
        while mask != before:
            before = mask
            for gang in masks:
                if gang & mask:
                    mask |= gang
        return mask

    def parts_of(self, tenant: Tenant) -> Collection[Part]:
        """What the tenant has on the devices of its gang, and something of it where others have
        more than there is room for. On its other devices it has nothing, and nothing moves."""
        where = self.where
        parts = where.of.get(tenant.id, NOWHERE)
        if tenant.wider:  # it may have some on devices of its next lease
            parts = {uuid: part for uuid, part in parts.items() if uuid in tenant.gang}
        if not where.full:
            return parts.values()
        others = [u for u in sorted(where.full.intersection(tenant.gang)) if u not in parts]
        return [*parts.values(), *(self.devices[u].residency.part_of(tenant.id) for u in others)]

    def holders(self, device: str) -> list[Tenant]:
        """Tenants that have a lease on the device, longest first."""
        held = self.devices[device].holders.values()
        return sorted(held, key=lambda t: t.lease.epoch if t.lease else 0)

    def waiting(self, mask: int = -1) -> list[Tenant]:
        """Who waits for one of these devices (-1: of all), as they came."""
        found = [t for t in self.tenants.values() if t.waiting and t.mask & mask]
        return sorted(found, key=lambda tenant: tenant.arrival)

    def first_on(self, device: Device) -> Tenant | None:
        """The first in the line for the device."""
        places = list(device.line[:1])
        places += [(t.place, t) for t in self.free.values() if t.place and t.mask & device.bit]
        return min(places)[1] if places else None

    # -- what tenants heed ----------------------------------------------------------

    def join(self, tenant: Tenant) -> None:
        """The tenant has this gang from now on."""
        tenant.devices = tuple([self.devices[uuid] for uuid in tenant.gang])
        tenant.mask = self.mask(tenant.gang)
        tenant.heeds = self.heeds(tenant)
        self.online += tenant.online
        if len(tenant.gang) > 1:
            self.news |= NEW_GANGS
        if tenant.has_share:
            self.news |= NEW_SHARES if self.shares.of else NEW_SHARES | NEW_CONTROLS
            self.shares.join(tenant)

    def leave(self, tenant: Tenant) -> None:
        """The tenant is over, or gets another gang."""
        self.online -= tenant.online
        if len(tenant.gang) > 1:
            self.news |= NEW_GANGS
        if tenant.has_asked:
            self.news |= NEW_CONTROLS
        if tenant.has_share:
            self.news |= NEW_SHARES
            self.shares.leave(tenant)

    def follow_controls(self) -> None:
        """The work of other tenants than before can be divided by the GPU's time slices."""
        self.uncontrolled_mask = 0
        for tenant in self.tenants.values():
            self.uncontrolled_mask |= tenant.mask if tenant.uncontrolled else 0

    def heeds(self, tenant: Tenant) -> int:
        """What it is to heed now. The fallback where time slices cannot divide the work of all
        tenants of a device: by the driver's own slices memory that fits is side by side all the
        same, but a tenant with a share takes turns there, by a policy that keeps shares."""
        lock = self.lock_of(tenant)
        if lock == "off":
            return FREE
        turns_instead = tenant.has_share and tenant.mask & self.uncontrolled_mask
        shares = lock == "auto" and not turns_instead
        return SHARE if shares and all(device.fits for device in tenant.devices) else ALONE

    def hold(self, tenant: Tenant) -> None:
        """The tenant holds its gang from now on."""
        now = self.now
        for device in tenant.devices:
            device.begin(tenant, now)
        if tenant.heeds:
            self.locked_mask |= tenant.mask
            if tenant.heeds == ALONE:
                self.alone_mask |= tenant.mask

    def end(self, tenant: Tenant, given_up_at: int) -> None:
        """The tenant does not hold it any more. Others could have had it since `given_up_at`."""
        now = self.now
        for device in tenant.devices:
            device.end(tenant, now, given_up_at)
        self.count_holders(tenant.devices)

    def count_holders(self, devices: Iterable[Device]) -> None:
        """Other tenants hold these devices than before, or heed something else."""
        for device in devices:
            if not device.clock.locked:
                self.locked_mask &= ~device.bit
            if not device.clock.alone:
                self.alone_mask &= ~device.bit

    def taken(self, heeds: int) -> int:
        """Devices that are not free for tenants that heed this."""
        if heeds == ALONE:
            return self.locked_mask
        return self.alone_mask if heeds == SHARE else 0

    def lock_of(self, tenant: Tenant) -> str:
        """The lock mode that counts: the site's for one of its devices, else the tenant's."""
        lock = tenant.lock
        for device in tenant.devices:
            if device.lock is not None:
                lock = device.lock
                break
        if tenant.swaps and lock == "off":
            lock = "auto"
        # Beside others the parts of a job on several nodes would run at different times.
        return "on" if tenant.ordered and lock == "auto" else lock

    def can_share(self, tenant: Tenant) -> bool:
        return tenant.heeds != ALONE

    def compatible(self, one: Tenant, other: Tenant) -> bool:
        """May both hold a lease on the same device at once?"""
        return FREE in (one.heeds, other.heeds) or one.heeds == other.heeds == SHARE

    def in_the_way(self, tenant: Tenant) -> Iterator[Tenant]:
        """Holders that must release before this tenant can have its gang. A gang that is in the
        way on several devices comes for each of them."""
        for device in tenant.devices if tenant.mask & self.taken(tenant.heeds) else ():
            for other in device.holders.values():
                if other is not tenant and not self.compatible(tenant, other):
                    yield other

    def is_free(self, tenant: Tenant) -> bool:
        """Nobody holds, and nothing withholds, what the tenant needs."""
        return not self.withheld(tenant) and next(self.in_the_way(tenant), None) is None

    def crowded_out(self, tenant: Tenant) -> bool:
        """What others have and cannot be moved leaves no room for what it must have there."""
        return any(device.residency.crowded_out(tenant.id) for device in tenant.devices)

    def withheld(self, tenant: Tenant) -> bool:
        """It may not have its gang, or could not use it."""
        if tenant.frozen or tenant.departs or (tenant.parked and tenant.parked.suspended):
            return True
        if tenant.mask & self.drained_mask or tenant.barred_until is not None:
            return True
        if tenant.id in self.shares.waiting or tenant.ordered in orders.OUT_OF_LINE:
            return True
        return tenant.id in self.where.of and self.crowded_out(tenant)

    def is_worth(self, tenant: Tenant, ns: int) -> bool:
        """A lease for less time would be spent on the handoff."""
        if ns < BACKFILL_NS:
            return False
        return self.costs_less(tenant, ns // HANDOFF_SHARE + 1)

    def costs_less(self, tenant: Tenant, ns: float) -> bool:
        """Its handoff does."""
        return handoff_ns(self.parts_of(tenant)) < ns

    def quantum(self, tenant: Tenant, handoff_ns: int = 0, waiter: Tenant | None = None) -> int:
        """How long it may hold its gang while somebody waits whose handoff takes so long. The
        handoff to itself must have been worth it too. What both have had must be charged."""
        if waiter is not None and waiter.ordered == orders.HOLD:
            return 0
        if waiter is not None and (tenant.online or tenant.offline):
            of_class = classes.quantum(tenant, waiter)
            if of_class is not None:
                return of_class
        policy, lease = self.policies.of(tenant), tenant.lease
        if lease is not None and lease.short:
            return SHORT_NS
        if lease is not None and lease.moves_ns > handoff_ns:
            handoff_ns = lease.moves_ns
        floor = self.floor_ns(handoff_ns)
        if waiter is not None and waiter.hurries and not tenant.online:
            return BACKFILL_NS
        if waiter is not None and policy.preempts(self, waiter, tenant):
            return max(BACKFILL_NS, floor)
        return max(policy.quantum(self, tenant, waiter, self.asked_ns(tenant)), floor)

    def floor_ns(self, handoff_ns: int) -> int:
        """A quantum is never shorter, where a handoff takes so long."""
        return min(HANDOFF_SHARE * handoff_ns, LONGEST_STRETCH_NS)

    def asked_ns(self, tenant: Tenant) -> int:
        """The quantum that the site or the tenant wants for it."""
        for device in tenant.devices:
            if device.quantum_ns is not None:
                return device.quantum_ns
        return tenant.quantum_ns

    # -- what a policy asks ----------------------------------------------------------

    def handoff_ns(self, tenant: Spec) -> int:
        known = self.tenants.get(tenant.id)
        return handoff_ns(self.parts_of(known)) if known else 0

    def held_ns(self, tenant: Spec) -> int:
        known = self.tenants.get(tenant.id)
        lease = known.lease if known else None
        return 0 if lease is None or lease.restoring else self.now - lease.since

    def competitors(self, tenant: Spec) -> int:
        return max([self.devices[uuid].clock.wanting for uuid in tenant.gang])
