"""What is decided after every event: who must release, who is told, and who is granted."""

from __future__ import annotations

from leased.core.effects import Effects
from leased.core.leasing import Leasing
from leased.core.memory import Memory
from leased.core.rules import Rules
from leased.core.state import Tenant
from leased.core.turns import Turns
from leased.core.waiters import Waiters

# Somewhat longer than the interposer waits at most between two attempts to connect.
COME_BACK_NS = 600_000_000  # ns


class Deciding:
    """The last part of every event."""

    def __init__(
        self,
        rules: Rules,
        effects: Effects,
        memory: Memory,
        waiters: Waiters,
        leasing: Leasing,
        *,
        turns: Turns,
    ):
        self.rules = rules
        self.effects = effects
        self.fitting = memory.fitting
        self.waiters = waiters
        self.leasing = leasing
        self.turns = turns

    def next_deadline(self) -> int | None:
        times = (self.waiters.wakes.first(), self.rules.grace_until)
        return min((time for time in times if time), default=None)

    def pass_grace(self) -> None:
        if self.rules.grace_until and self.rules.now >= self.rules.grace_until:
            self.rejoin()

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
        self.effects.changed |= self.rules.cohorts.mask(self.rules.devices)

    def decide(self) -> None:
        """Separate holders, tell them who waits, and grant, on every device that has changed."""
        effects, cohorts = self.effects, self.rules.cohorts
        self.waiters.pass_wakes()
        if cohorts.gangs_changed:
            self.waiters.mix()
        for tenant in self.fitting.take_shrunk() if self.fitting.shrunk else ():
            self.waiters.place_again(tenant)
        again = 0  # devices where there may be more to grant
        while effects.changed or again or self.fitting.affected:
            for tenant in self.fitting.take_affected() if self.fitting.affected else ():
                self._make_way(tenant)
            changed, effects.changed = effects.changed, 0
            mask, again = cohorts.reached(changed | again), 0
            unsettled, effects.unsettled = effects.unsettled, False
            if unsettled:
                changed = mask
                for device in self.rules.devices.values():
                    self.leasing.stages.separate(device)
            # This comes before the grants, which need to know when devices will be free.
            every = unsettled or changed & self.rules.drained_mask != 0
            self.leasing.contention.tell(cohorts.to_tell(changed, every))
            if self.rules.grace_until:
                continue
            found = self.turns.next(mask)
            if found is not None:
                self.leasing.grant(*found)
                again = mask

    def _make_way(self, tenant: Tenant) -> None:
        """Revoke a tenant that was granted in the hope of room that it cannot have after all."""
        self.waiters.sort(tenant)
        lease = tenant.lease
        if lease and lease.restoring and not lease.revoked and self.rules.crowded_out(tenant):
            self.leasing.stages.revoke(tenant)
