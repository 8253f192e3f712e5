"""The arbiter's state, and what its rules say of it: who may hold, who is in the way, how long.

To ask changes nothing. This is also what a policy may look at (View in leased/core/policy.py).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from leased.core.charges import Charges
from leased.core.clock import Clock
from leased.core.cohort import ALONE, SHARE, Cohort, compatible
from leased.core.cohorts import Cohorts
from leased.core.meter import Meter
from leased.core.policies import Policies
from leased.core.policy import MakePolicy, Spec
from leased.core.residency import Residency
from leased.core.shares import Shares
from leased.core.state import Device, Tenant
from leased.core.whereabouts import Part, Whereabouts, handoff_ns

HANDOFF_SHARE = 20  # a handoff is at most a twentieth of the quantum
LONGEST_STRETCH_NS = 300_000_000_000  # whatever handoffs are said to take
BACKFILL_NS = 20_000_000  # less is not worth a grant
GRACE_MORE_NS = 4_000_000_000  # by which the grace after a restart grows at most
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
        self.clock = Clock(now)
        self.where = Whereabouts()
        self.devices = {
            uuid: Device(uuid, self._residency(uuid, size), Meter(now))
            for uuid, size in devices.items()
        }
        self.tenants: dict[int, Tenant] = {}
        self.cohorts = Cohorts(self.devices)
        self.policies = Policies(make_policy, self.cohorts.bit)
        self.shares = Shares()
        self.charges = Charges(self.devices, now, self.policies, self.sliced)
        self.drained_mask = 0
        self.forced_mask = 0  # devices on which the site forces a quantum
        # Devices of tenants whose work the GPU's own time slices cannot divide.
        self.uncontrolled_mask = 0
        self.controls_changed = False
        self.mixed_mask = 0  # devices on which orders of several policies would meet
        self.drain_ns = drain_ns
        self.grace_until = grace_until
        self.grace_most = grace_until + GRACE_MORE_NS

    def _residency(self, uuid: str, size: int) -> Residency:
        return Residency(size, clock=self.clock, uuid=uuid, where=self.where)

    @property
    def now(self) -> int:
        return self.clock.now

    @property
    def queue(self) -> list[int]:
        """Tenants that wait: who is next, then those who could not run, as they came."""
        waiting = [tenant for tenant in self.tenants.values() if tenant.waiting]
        waiting.sort(key=lambda t: (t.place is None, t.place or t.arrival))
        return [tenant.id for tenant in waiting]

    def devices_of(self, tenant: Tenant) -> tuple[Device, ...]:
        return self.cohorts.of[tenant.id].devices

    def parts_of(self, tenant: Spec) -> Collection[Part]:
        """What the tenant has on the devices of its gang, and something of it where others have
        more than there is room for. On its other devices it has nothing, and nothing moves."""
        parts = self.where.of.get(tenant.id, NOWHERE)
        known = self.tenants.get(tenant.id)
        if known is not None and known.wider:  # it may have some on devices of its next lease
            parts = {uuid: part for uuid, part in parts.items() if uuid in known.gang}
        full = sorted(self.where.full.intersection(tenant.gang)) if self.where.full else ()
        others = [uuid for uuid in full if uuid not in parts]
        if not others:
            return parts.values()
        return [*parts.values(), *(self.devices[u].residency.part_of(tenant.id) for u in others)]

    def holders(self, device: str) -> list[Tenant]:
        """Tenants that have a lease on the device, longest first."""
        held = self.devices[device].holders.values()
        return sorted(held, key=lambda t: t.lease.epoch if t.lease else 0)

    def drain_changed(self) -> None:
        """The site has drained a device, or resumed it."""
        self.drained_mask = self.cohorts.mask(u for u, d in self.devices.items() if d.drained)

    def quantum_changed(self) -> None:
        """The site forces a quantum on a device, or does not any more."""
        forced = [u for u, device in self.devices.items() if device.quantum_ns is not None]
        self.forced_mask = self.cohorts.mask(forced)

    def mix(self) -> int:
        """Gangs or policies have changed. Returns the devices whose waiters have another order
        now: by the policy instead of who came first, or the other way round."""
        before, self.mixed_mask = self.mixed_mask, self.policies.mixed(self.cohorts.connected)
        self.cohorts.gangs_changed = False
        return before ^ self.mixed_mask

    def lock_of(self, tenant: Tenant) -> str:
        """The lock mode that counts: the site's for one of its devices, else the tenant's."""
        return self.cohorts.lock_of(self.cohorts.of[tenant.id])

    def can_share(self, tenant: Tenant) -> bool:
        return self.cohorts.of[tenant.id].heeds != ALONE

    def may_share(self, tenant: Tenant) -> bool:
        """Whether it may run side by side with others, if its lock and all memory allow that. One
        with a share may where time slices of the GPU can keep it."""
        gang = self.cohorts.mask(tenant.gang)
        return not tenant.has_share or not gang & self.uncontrolled_mask

    def asks(self, tenant: Tenant) -> None:
        """The tenant asks for leases from now on."""
        if not tenant.has_asked:
            tenant.has_asked = self.controls_changed = True

    def sliced(self, tenant: Tenant) -> bool:
        """The GPU's own time slices keep its share now."""
        return tenant.has_share and self.cohorts.of[tenant.id].heeds == SHARE

    def uncontrolled(self, device: str) -> list[Tenant]:
        """Tenants of the device that ask for leases and whose work time slices cannot divide."""
        found = self.tenants.values()
        return [t for t in found if device in t.gang and t.has_asked and not t.controlled]

    def compatible(self, one: Tenant, other: Tenant) -> bool:
        """May both hold a lease on the same device at once?"""
        return compatible(self.cohorts.of[one.id], self.cohorts.of[other.id])

    def in_the_way(self, tenant: Tenant) -> Iterator[Tenant]:
        """Holders that must release before this tenant can have its gang."""
        for cohort in self.cohorts.holders.against(self.cohorts.of[tenant.id]):
            for other in cohort.holding.values():
                if other is not tenant:
                    yield other

    def is_free(self, tenant: Tenant) -> bool:
        """Nobody holds, and nothing withholds, what the tenant needs."""
        return not self.withheld(tenant) and next(self.in_the_way(tenant), None) is None

    def drained(self, tenant: Tenant) -> bool:
        """The site has drained one of its devices."""
        return self.drained_mask & self.cohorts.of[tenant.id].mask != 0

    def crowded_out(self, tenant: Tenant) -> bool:
        """It swaps, so that all its memory must be there, and what others have and cannot be
        moved leaves no room."""
        return tenant.swaps and any(
            self.devices[uuid].residency.crowded_out(tenant.id) for uuid in tenant.gang
        )

    def withheld(self, tenant: Tenant) -> bool:
        """It may not have its gang, or could not use it."""
        suspended = tenant.parked is not None and tenant.parked.suspended
        away = tenant.frozen or suspended or tenant.departs
        waits = tenant.barred or tenant.id in self.shares.waiting
        return away or waits or self.drained(tenant) or self.crowded_out(tenant)

    def worth(self, tenant: Tenant) -> int:
        """A lease for less time would be spent on the handoff."""
        return max(BACKFILL_NS, HANDOFF_SHARE * self.handoff_ns(tenant))

    def is_worth(self, tenant: Tenant, ns: int) -> bool:
        """A lease for so long is; see worth()."""
        if ns < BACKFILL_NS:
            return False
        return self.costs_less(tenant, ns // HANDOFF_SHARE + 1)

    def costs_less(self, tenant: Tenant, ns: float) -> bool:
        """Its handoff does."""
        return self.where_dear(tenant, ns) is None

    def where_dear(self, tenant: Tenant, ns: float) -> str | None:
        """A device on which its handoff costs so much; None: it costs less."""
        if ns <= 0:
            return tenant.gang[0]
        for part in self.parts_of(tenant):
            if handoff_ns((part,)) >= ns:
                return part[0].uuid
        return None

    def cheaper(self, cohort: Cohort) -> bool:
        """The handoff for which its holders were told costs less now, by enough to be news."""
        waiter, ns = cohort.waiter, cohort.most_cost / 2
        if waiter is None:
            return False
        dear = cohort.dear  # where it was dear it most often still is
        if dear is None or self.devices[dear].residency.handoff_ns(waiter.id) < ns:
            cohort.dear = self.where_dear(waiter, ns)
        return cohort.dear is None

    def quantum(self, tenant: Tenant, handoff_ns: int = 0, waiter: Tenant | None = None) -> int:
        """How long it may hold its gang while somebody waits whose handoff takes so long. What
        both have had must be charged."""
        policy = self.policies.of(tenant)
        floor = self.floor_ns(handoff_ns)
        if waiter is not None and policy.preempts(self, waiter, tenant):
            return max(BACKFILL_NS, floor)
        return max(policy.quantum(self, tenant, waiter, self.asked_ns(tenant)), floor)

    def floor_ns(self, handoff_ns: int) -> int:
        """A quantum is never shorter, where a handoff takes so long."""
        return min(HANDOFF_SHARE * handoff_ns, LONGEST_STRETCH_NS)

    def asked_ns(self, tenant: Tenant) -> int:
        """The quantum that the site or the tenant wants for it."""
        return self._forced_quantum(tenant) or tenant.quantum_ns

    # -- what a policy asks ----------------------------------------------------------

    def handoff_ns(self, tenant: Spec) -> int:
        return handoff_ns(self.parts_of(tenant))

    def held_ns(self, tenant: Spec) -> int:
        known = self.tenants.get(tenant.id)
        lease = known.lease if known else None
        return 0 if lease is None or lease.restoring else self.now - lease.since

    def competitors(self, tenant: Spec) -> int:
        return self.charges.competitors(tenant)

    def _forced_quantum(self, tenant: Tenant) -> int | None:
        for uuid in tenant.gang if self.cohorts.of[tenant.id].mask & self.forced_mask else ():
            forced = self.devices[uuid].quantum_ns
            if forced is not None:
                return forced
        return None
