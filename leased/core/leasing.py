"""Grants and ends leases, on all devices of a gang at once."""

from __future__ import annotations

from dataclasses import replace

from leased.core import orders
from leased.core.actions import Answer, Effects, Grant
from leased.core.chains import Chains, fit, takes_part
from leased.core.contention import Contention
from leased.core.memory import Memory
from leased.core.rules import MOVE_PATIENCE_NS, NEW_CONTROLS, Rules
from leased.core.stages import Stages
from leased.core.state import ALONE, FOREVER, Device, Lease, Tenant
from leased.core.waiters import Waiters
from leased.memory.residency import handoff_ns


class Leasing:
    """epoch: of the next lease. Those up to first_epoch were granted before a restart."""

    def __init__(
        self, rules: Rules, effects: Effects, memory: Memory, waiters: Waiters, first_epoch: int
    ):
        self.rules = rules
        self.effects = effects
        self.memory = memory
        self.waiters = waiters
        self.short_turns = waiters.short_turns
        self.chains = Chains(rules)
        self.stages = Stages(rules, effects, self.short_turns, self.finish)
        self.contention = Contention(rules, effects, self.stages)
        self.epoch = self.first_epoch = first_epoch

    def grant(self, tenant: Tenant, until: int, joined: Lease | None = None) -> None:
        """Grant the tenant its gang. Where it fills a gap, it must have released by `until`.
        joined: the lease of another one of its chain, whose quantum is its own too."""
        rules = self.rules
        shared = tenant.heeds != ALONE
        short, kept = tenant.hurries, tenant.kept
        tenant.hurries, tenant.kept = False, None
        self.waiters.end(tenant, holds=True)
        handed = self._handed(tenant, shared)
        prefetch, moves_ns = dict.fromkeys(tenant.gang, 0), 0
        if rules.where.full or tenant.id in rules.where.of:
            moves_ns = 0 if shared else handoff_ns(rules.parts_of(tenant))
            self._bring_in(tenant, shared, prefetch)
        lease = self.hold(tenant, self.epoch)
        lease.handed, lease.moves_ns = handed, moves_ns
        if joined is not None:
            lease.joined, lease.since, lease.moves_ns = True, joined.since, joined.moves_ns
        if short or kept:
            self.short_turns.granted(lease, short, kept)
        awaits_room = bool(rules.where.swapping) and self.memory.awaits_room(tenant)
        untold = awaits_room or tenant.ordered != ""
        if tenant.swaps or untold:
            self._restores(tenant, lease)
        elif handed:
            self.stages.count_handoffs(lease)
        self.epoch += 1
        grant = Grant(tenant.id, lease.epoch, shared, prefetch)
        if untold:
            lease.untold, rules.untold[tenant.id] = grant, tenant
        else:
            self.effects.grant(grant)
        if tenant.ordered:
            self.waiters.line_up_again(tenant)
            self.effects.do(Answer(tenant.id, orders.HELD))
        if until != FOREVER:
            self.contention.contend(tenant, None, until)
            return
        if tenant.limit < 1:
            self.contention.limit(tenant)
        if self.short_turns.owed and not lease.restoring:
            self.short_turns.goes_on(lease, tenant.mask, rules.now)

    def _restores(self, tenant: Tenant, lease: Lease) -> None:
        """The holder's memory is on the way, or waits for room."""
        lease.restoring = True
        for device in tenant.devices:
            device.restoring.add(tenant.id)

    def begin(self, tenant: Tenant, lease: Lease) -> None:
        """All that the holder needs is there, and its quantum begins."""
        rules = self.rules
        self.stages.begin(tenant, lease)
        restore_ns = rules.now - lease.granted_at
        self.short_turns.goes_on(lease, tenant.mask, rules.now, restore_ns)
        for device in tenant.devices:
            device.restoring.discard(tenant.id)
        self.memory.stir(tenant)  # the link is free for others
        self.effects.changed |= tenant.mask

    def look_at_untold(self) -> bool:
        """Tell holders of their leases for which the room is there by now, and the order to run
        where they need one. A lease that is revoked before ends without a word. Returns whether
        there was any of either."""
        found = False
        for tenant in list(self.rules.untold.values()):
            lease = tenant.held
            if lease.revoked:
                self.finish(tenant)
                if tenant.lease is None:
                    self.waiters.begin(tenant)
            elif tenant.ordered not in ("", orders.RUN) or self.memory.awaits_room(tenant):
                continue
            else:
                self._tell(tenant, lease)
            found = True
        return found

    def _tell(self, tenant: Tenant, lease: Lease) -> None:
        """The lease begins only now, so it has a new epoch."""
        assert lease.untold is not None
        lease.epoch = tenant.granted = self.epoch
        self.epoch += 1
        self.effects.grant(replace(lease.untold, epoch=lease.epoch))
        lease.untold = None
        del self.rules.untold[tenant.id]
        if tenant.swaps:
            lease.granted_at = lease.moved_at = self.rules.now
            self._restores(tenant, lease)
            self.stages.plan_again(tenant, lease)
        else:
            self.begin(tenant, lease)

    def _handed(self, tenant: Tenant, shared: bool) -> dict[int, list[str]]:
        """Count the handoffs to the tenant that is granted. Returns the devices by the time since
        when each of these lasts."""
        handed: dict[int, list[str]] = {}
        for device in tenant.devices:
            before = device.last_holder
            if before is not None and before != tenant.id:
                if tenant.chain and before in self.rules.chains[tenant.chain]:
                    continue
                other = self.rules.tenants.get(before) if shared else None
                if other is None or other.heeds == ALONE:  # the two could not run side by side
                    tenant.usage[device.uuid].handoffs += 1
                    since = max(device.given_up_at, tenant.asked_at)
                    handed.setdefault(since, []).append(device.uuid)
        return handed

    def _bring_in(self, tenant: Tenant, shared: bool, prefetch: dict[str, int]) -> None:
        """Bring in the memory of the tenant that is granted. prefetch: of its gang, to which the
        bytes are added that it should restore now."""
        moved = self.memory.work(tenant)
        # Beside others whose memory does not fit, a prefetch would only evict theirs.
        fits = not shared or all(device.fits for device in tenant.devices)
        for uuid, (bytes_in, bytes_out) in moved.items():
            self.effects.moved |= tenant.mask
            tenant.usage[uuid].move(bytes_in, bytes_out)
            if fits:
                prefetch[uuid] = bytes_in

    def hold(self, tenant: Tenant, epoch: int) -> Lease:
        rules, now = self.rules, self.rules.now
        tenant.lease = Lease(epoch, now)
        tenant.granted = epoch
        rules.hold(tenant)
        self.effects.changed |= tenant.mask
        if rules.charges.on:
            rules.charges.begin(tenant, True, now)
        return tenant.lease

    def finish(self, tenant: Tenant) -> None:
        """The tenant's lease is over. One that was ordered to keep its devices keeps them."""
        self.end(tenant)
        if tenant.ordered in orders.KEEPS:
            self.keep(tenant)

    def keep(self, tenant: Tenant) -> None:
        """Hold the devices for a tenant that is not to use them now, unless others have claimed
        them after a restart; and say what has come of its order."""
        if next(self.rules.in_the_way(tenant), None) is None:
            self._hold_untold(tenant)
        if tenant.ordered == orders.RUN:
            tenant.ordered = orders.STOP  # it takes another order to run again
            self.effects.do(Answer(tenant.id, orders.ENDS))
        elif tenant.ordered == orders.STOP:
            self.effects.do(Answer(tenant.id, orders.STOPPED))

    def _hold_untold(self, tenant: Tenant) -> None:
        rules, lease = self.rules, self.hold(tenant, self.epoch)
        self.epoch += 1
        nothing = dict.fromkeys(tenant.gang, 0)
        lease.untold = Grant(tenant.id, lease.epoch, False, nothing)
        rules.untold[tenant.id] = tenant

    def end(self, tenant: Tenant) -> None:
        """End the tenant's lease, so that others may have its devices."""
        rules, lease = self.rules, tenant.held
        rules.untold.pop(tenant.id, None)
        if rules.charges.on:
            rules.charges.end(tenant, rules.now)
        self.effects.changed |= tenant.mask
        rules.end(tenant, lease.revoked_at if lease.revoked else rules.now)
        if rules.where.full or tenant.parked or tenant.id in rules.where.of:
            if tenant.chain:
                self._rest(tenant)
            else:
                self.memory.rest(tenant)
        waited_ns = lease.revoked_at - lease.moved_at if lease.restoring else 0
        tenant.unserved = waited_ns >= MOVE_PATIENCE_NS and tenant.runs
        for _, share in rules.parts_of(tenant):
            share.unserved = tenant.unserved
        tenant.lease = None
        self.stages.dues.put(tenant.id, None)
        if lease.short:
            self.short_turns.over(tenant, rules.now)
        if tenant.wider:
            self.take_wider(tenant)

    def _rest(self, tenant: Tenant) -> None:
        """Its memory may leave, unless others of its chain go on; with the last one's all may."""
        mates = self.chains.holding(tenant)
        if mates and not (tenant.parked or tenant.frozen or tenant.wider):
            tenant.lingers = True
            return
        self.memory.rest(tenant)
        if not mates:
            for mate in self.chains.lingering(tenant):
                self.memory.rest(mate)

    def part(self, mask: int) -> None:
        """Where the memory of a chain does not fit any more, it does not hold together."""
        for device in self.rules.on(mask):
            held = [t for t in device.holders.values() if t.heeds and t.lease]
            held = [t for t in held if t.lease and not t.lease.revoked]
            if not device.fits and held and takes_part(held[0]):
                self._part(device, held)

    def _part(self, device: Device, held: list[Tenant]) -> None:
        """held: the tenants of one chain that hold the device, as they came."""
        lingering = self.chains.lingering(held[0])
        while not fit(device, [*held, *lingering]):
            if lingering:
                self.memory.rest(lingering.pop())
            elif len(held) > 1:
                self.stages.revoke(held.pop())
            else:
                return

    def release(self, tenant: Tenant, epoch: int) -> None:
        """The processes of the tenant have shut their gates and drained."""
        lease = tenant.lease
        since = tenant.forfeited.pop(epoch, None)
        if since is not None:
            tenant.debt_ns += self.rules.now - since
        if lease is not None and lease.epoch == epoch:
            if lease.overrun_at is not None:
                tenant.debt_ns += self.rules.now - lease.overrun_at
            if lease.kept:
                charged = self.rules.policies.of(tenant).charges
                self.short_turns.released(tenant, charged, self.rules.now)
            self.finish(tenant)

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
        self.waiters.end(tenant, holds=True)
        if not tenant.has_asked:
            tenant.has_asked = True
            self.rules.news |= NEW_CONTROLS
            self.waiters.arrive(tenant)
        self.hold(tenant, epoch)
        self.memory.work(tenant)
        self.contention.limit(tenant)
        mates = self.chains.holding(tenant) if tenant.chain else []
        for other in list(self.rules.in_the_way(tenant)):
            if other in mates:
                continue
            loser = min(tenant, other, key=lambda t: t.lease.epoch if t.lease else 0)
            if loser.lease and not loser.lease.revoked:
                self.stages.revoke(loser)
        if tenant.ordered and tenant.lease and not tenant.lease.revoked:
            self.stages.revoke(tenant)  # whoever ordered it to run is no more

    def take_wider(self, tenant: Tenant) -> None:
        """Give a tenant without a lease the wider gang that it is to have, if any."""
        if not tenant.wider:
            return
        rules = self.rules
        before = rules.policies.of(tenant)
        tenant.settle(rules.now, rules.devices)
        tenant.settle_memory(rules.devices)
        rules.leave(tenant)
        tenant.gang, tenant.wider = tenant.wider, ()
        rules.join(tenant)
        after = rules.policies.of(tenant)
        if after is not before:
            before.closed(tenant.id)
        after.opened(tenant)
        rules.news |= NEW_CONTROLS
