"""Grants and ends leases, on all devices of a gang at once."""

from __future__ import annotations

from leased.core.actions import Grant
from leased.core.cohort import FREE
from leased.core.contention import Contention
from leased.core.effects import Effects
from leased.core.memory import Memory
from leased.core.quanta import Quanta
from leased.core.rules import Rules
from leased.core.stages import Stages
from leased.core.state import FOREVER, Lease, Tenant
from leased.core.waiters import Waiters


class Leasing:
    """epoch: of the next lease. Those up to first_epoch were granted before a restart."""

    def __init__(
        self, rules: Rules, effects: Effects, memory: Memory, waiters: Waiters, first_epoch: int
    ):
        self.rules = rules
        self.effects = effects
        self.memory = memory
        self.waiters = waiters
        self.quanta = Quanta(rules)
        self.stages = Stages(rules, effects, self.quanta, self.end)
        self.contention = Contention(rules, effects, self.quanta, self.stages)
        self.epoch = self.first_epoch = first_epoch

    def grant(self, tenant: Tenant, until: int) -> None:
        """Grant the tenant its gang. Where it fills a gap, it must have released by `until`."""
        rules = self.rules
        shared = rules.can_share(tenant)
        self.waiters.end(tenant)
        handed = self._handed(tenant, shared)
        prefetch = self._bring_in(tenant, shared)
        lease = self.hold(tenant, self.epoch)
        lease.handed = handed
        if tenant.swaps:
            lease.restoring = True
            for uuid in tenant.gang:
                rules.devices[uuid].restoring.add(tenant.id)
        else:
            self.quanta.count_handoffs(lease)
        self.epoch += 1
        quantum = rules.quantum(tenant)
        self.effects.do(Grant(tenant.id, lease.epoch, shared, quantum, prefetch))
        if until != FOREVER:
            self.contention.contend(tenant, None, until)
        else:
            self.contention.limit(tenant)

    def _handed(self, tenant: Tenant, shared: bool) -> dict[int, list[str]]:
        """Count the handoffs to the tenant that is granted. Returns the devices by the time since
        when each of these lasts."""
        devices, asked_at, usage = self.rules.devices_of(tenant), tenant.asked_at, tenant.usage
        before = {device.last_holder for device in devices}
        from_others = {number for number in before if self._is_handoff(tenant, number, shared)}
        handed: dict[int, list[str]] = {}
        for device in devices if from_others else ():
            if device.last_holder in from_others:
                uuid, given_up_at = device.uuid, device.given_up_at
                usage[uuid].handoffs += 1
                since = given_up_at if given_up_at > asked_at else asked_at
                if since in handed:
                    handed[since].append(uuid)
                else:
                    handed[since] = [uuid]
        return handed

    def _bring_in(self, tenant: Tenant, shared: bool) -> dict[str, int]:
        """Bring in the memory of the tenant that is granted. Returns the bytes that it should
        restore now, by device."""
        prefetch, moved = dict.fromkeys(tenant.gang, 0), self.memory.work(tenant)
        for uuid, (bytes_in, bytes_out) in moved.items():
            tenant.usage[uuid].move(bytes_in, bytes_out)
            prefetch[uuid] = bytes_in
        # Beside others whose memory does not fit, a prefetch would only evict theirs.
        if moved and shared and not all(d.fits for d in self.rules.devices_of(tenant)):
            return dict.fromkeys(tenant.gang, 0)
        return prefetch

    def _is_handoff(self, tenant: Tenant, before: int | None, shared: bool) -> bool:
        """Another tenant had the device before, and the two could not run side by side."""
        if before is None or before == tenant.id:
            return False
        other = self.rules.tenants.get(before)
        return not shared or (other is not None and not self.rules.can_share(other))

    def hold(self, tenant: Tenant, epoch: int) -> Lease:
        rules, now = self.rules, self.rules.now
        tenant.lease = Lease(epoch, now, now, now)
        tenant.granted = epoch
        rules.cohorts.hold(tenant)
        cohort = rules.cohorts.of[tenant.id]
        self.effects.changed |= cohort.mask
        for device in cohort.devices:
            device.begin(tenant, now)
        if cohort.heeds != FREE:
            rules.charges.begin(tenant, True, now)
        return tenant.lease

    def end(self, tenant: Tenant) -> None:
        """End the tenant's lease, so that others may have its devices."""
        rules, now = self.rules, self.rules.now
        assert tenant.lease is not None
        given_up_at = tenant.lease.revoked_at if tenant.lease.revoked else now
        cohort = rules.cohorts.of[tenant.id]
        rules.charges.end(tenant, now)
        self.effects.changed |= cohort.mask
        rules.cohorts.end(tenant)
        for device in cohort.devices:
            device.end(tenant, now, given_up_at)
        self.memory.rest(tenant)
        tenant.lease = None
        self.quanta.dues.put(tenant.id, None)
        self.take_wider(tenant)

    def release(self, tenant: Tenant, epoch: int) -> None:
        """The processes of the tenant have shut their gates and drained."""
        lease = tenant.lease
        since = tenant.forfeited.pop(epoch, None)
        if since is not None:
            tenant.debt_ns += self.rules.now - since
        if lease is not None and lease.epoch == epoch:
            if lease.revoked:
                tenant.drained_ns = self.rules.now - lease.revoked_at
            if lease.overrun_at is not None:
                tenant.debt_ns += self.rules.now - lease.overrun_at
            self.end(tenant)

    def adopt(self, tenant: Tenant, epoch: int) -> None:
        """Let a process keep the lease that it had before a restart; after the grace period, only
        where nobody else has the devices.

        Where two processes claim a device, the one whose lease was granted later has it by right.
        """
        known = epoch == tenant.granted or 0 < epoch < self.first_epoch
        if tenant.lease is not None or epoch in tenant.forfeited or tenant.parked or not known:
            return
        if not self.rules.grace_until and not self.rules.is_free(tenant):
            return
        self.waiters.end(tenant)
        self.rules.asks(tenant)
        self.hold(tenant, epoch)
        self.memory.work(tenant)
        self.contention.limit(tenant)
        for other in list(self.rules.in_the_way(tenant)):
            loser = min(tenant, other, key=lambda t: t.lease.epoch if t.lease else 0)
            if loser.lease and not loser.lease.revoked:
                self.stages.revoke(loser)

    def take_wider(self, tenant: Tenant) -> None:
        """Give a tenant without a lease the wider gang that it is to have, if any."""
        if not tenant.wider:
            return
        rules = self.rules
        before = rules.policies.of(tenant)
        tenant.settle(rules.now, rules.devices)
        tenant.settle_memory(rules.devices)
        rules.cohorts.leave(tenant)
        rules.shares.leave(tenant)
        tenant.gang, tenant.wider = tenant.wider, ()
        rules.shares.join(tenant)
        after = rules.policies.of(tenant)
        if after is not before:
            before.closed(tenant.id)
        after.opened(tenant)
        rules.controls_changed = True
        rules.cohorts.join(tenant, rules.may_share(tenant))

    def pass_deadlines(self) -> None:
        self.stages.pass_deadlines()

    def next_deadline(self) -> int | None:
        return self.quanta.dues.first()
