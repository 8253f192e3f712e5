"""What is decided after every event: who must release, who is told, and who is granted."""

from __future__ import annotations

from leased.core import orders
from leased.core.actions import Answer
from leased.core.leasing import Leasing
from leased.core.state import Tenant
from leased.core.turns import Turns

# Somewhat longer than the interposer waits at most between two attempts to connect.
COME_BACK_NS = 600_000_000  # ns


class Deciding:
    """The last part of every event."""

    def __init__(self, leasing: Leasing, turns: Turns):
        self.leasing, self.turns = leasing, turns
        self.rules, self.effects = leasing.rules, leasing.effects
        self.memory, self.waiters = leasing.memory, leasing.waiters

    def begin_grace(self, grace_ns: int) -> None:
        """Processes can come back only from now on, however long the start has taken."""
        if self.rules.grace_until:
            self.rules.give_grace(self.rules.now + grace_ns)

    def prolong_grace(self) -> None:
        """Processes still connect again after the restart, and one that holds a lease may be
        missing."""
        rules = self.rules
        if rules.grace_until:
            longer = min(rules.now + COME_BACK_NS, rules.grace_most)
            rules.grace_until = max(rules.grace_until, longer)

    def rejoin(self) -> None:
        """The grace period after a restart is over, and leases are granted from now on."""
        self.rules.grace_until = 0
        self.effects.changed |= self.rules.all_mask
        for tenant in self.rules.tenants.values():
            if tenant.ordered == orders.STOP and tenant.lease is None:
                self.leasing.keep(tenant)  # none of its processes has come back with a lease

    def decide(self) -> None:
        """Separate holders, tell them who waits, and grant, on every device that has changed."""
        effects, rules, memory = self.effects, self.rules, self.memory
        for tenant in memory.take_shrunk() if memory.shrunk else ():
            self.waiters.place_again(tenant)
        while (
            effects.changed or memory.affected or (rules.untold and self.leasing.look_at_untold())
        ):
            for tenant in memory.take_affected() if memory.affected else ():
                self._make_way(tenant)
            if effects.unsettled:
                self._settle()
            if rules.chains and self._join():
                continue
            changed, effects.changed = effects.changed, 0
            reached = rules.reached(changed) if rules.gangs_in_line else changed
            if rules.online:
                self.waiters.let_overdue_by(reached)
            # This comes before the grants, which need to know when devices will be free.
            moved, effects.moved = effects.moved & reached, effects.moved & ~reached
            self.leasing.contention.tell(reached if moved else changed, moved)
            waits = rules.in_line and not rules.grace_until
            if waits and rules.lined:
                self._look_whose_turn()
            found = self.turns.next(reached) if waits else None
            if found is not None:
                self.leasing.grant(*found)
                effects.changed |= changed

    def _look_whose_turn(self) -> None:
        """Of those that were ordered into the line, whose turn has come."""
        for tenant in list(self.rules.lined.values()):
            if self.turns.has_come(tenant):
                tenant.ordered = orders.READY
                self.effects.do(Answer(tenant.id, orders.READY))
                self.waiters.sort(tenant)

    def _join(self) -> bool:
        """Whether a waiter has joined others of its chain. Chains that do not fit part before."""
        self.leasing.part(self.effects.changed)
        may = self.rules.in_line and not self.rules.grace_until
        found = self.leasing.chains.next_to_join() if may else None
        if found is not None:
            waiter, lease = found
            self.leasing.grant(waiter, lease.until, lease)
        return found is not None

    def _settle(self) -> None:
        """Devices are used in another way than before."""
        rules, memory = self.rules, self.memory
        if memory.turned:
            turned, memory.turned = memory.turned, 0
            self.waiters.heed_again(t for t in rules.tenants.values() if t.mask & turned)
        self.effects.unsettled = False
        for device in rules.devices.values():
            self.leasing.stages.separate(device)
        for tenant in rules.tenants.values():
            if tenant.lease and not tenant.lease.revoked and not tenant.lease.contended:
                self.leasing.contention.limit(tenant)

    def _make_way(self, tenant: Tenant) -> None:
        """Revoke a tenant that was granted in the hope of room that it cannot have after all."""
        self.waiters.sort(tenant)
        lease = tenant.lease
        if lease and lease.restoring and not lease.revoked and self.rules.crowded_out(tenant):
            self.leasing.stages.revoke(tenant)
