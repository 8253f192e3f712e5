"""Decides which tenant may use which device, and until when. Events and times go in, actions out.

It is pure: it uses no sockets, no clock and no NVML, so the daemon, the simulator and the
property tests drive the same object. All times are ns of one monotonic clock.

The policy of a device says in which order waiters are served and how long a
holder runs (core/policy.py). These rules hold under every policy:
- A gang is leased all or none. A waiter that could not run delays no other tenant, and begins
  to wait anew when it can run again. It cannot run while its device is drained, while it cannot
  act, or while it swaps and memory of others that cannot move leaves it too little room.
- A holder that is in a waiter's way is told once that it is contended. From then on it yields
  when it has been idle for long enough, and is revoked when its quantum ends. A quantum is at
  least HANDOFF_SHARE times as long as the handoff. While no tenant waits there are no deadlines
  and no messages.
- If the first waiter cannot use a device yet, because it waits for others of its gang, waiters
  behind it may have the device until then (core/turns.py). So no device idles.
- Tenants with lock auto run side by side while the memory of all fits, and one at a time from
  the moment it does not. They run side by side again when it has fitted for a while; that while
  doubles with every change that was soon undone, so the device does not go back and forth.
- A waiter that has handled a signal gets a short turn soon (core/short_turns.py).
- A tenant that cannot act (stopped, suspended) delays no other: its devices go to others at
  once, and its memory counts as being there until it has left.
- A tenant whose leases others order (core/orders.py) has its devices when it is told to hold them,
  and until it is told to let go; in between others have them.
- A holder that does not release within drain_ns has overrun: the excess is taken off its next
  quanta. After drain_ns more its devices go to others, beside whatever it still runs. Those of
  its processes that have released wait for their next turn like any tenant: the work of the
  others may depend on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from leased.core.actions import Action, Effects
from leased.core.deadlines import Deadlines
from leased.core.deciding import Deciding
from leased.core.device_settings import DeviceSettings
from leased.core.events import (
    CameBack,
    DrainLimitSet,
    Event,
    Listens,
    OfDevice,
    OfTenant,
    Opened,
    Rejoined,
    Released,
    Tick,
)
from leased.core.leasing import Leasing
from leased.core.memory import Memory
from leased.core.policy import MakePolicy, PolicyState
from leased.core.rules import Rules
from leased.core.tenant_changes import OF_TENANT, TenantChanges, tenant_of
from leased.core.turns import Turns
from leased.core.waiters import Waiters
from leased.usage.usage import Usage

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
        self.rules = Rules(devices, make_policy, now, drain_ns, grace_until)
        self.devices, self.tenants = self.rules.devices, self.rules.tenants
        self.effects = Effects()
        self.turns = Turns(self.rules)
        self.memory = Memory(self.rules, self.effects)
        self.waiters = Waiters(self.rules, self.effects, self.memory, self._hurry)
        self.leasing = Leasing(self.rules, self.effects, self.memory, self.waiters, first_epoch)
        self.tenant_changes = TenantChanges(self.leasing)
        self.device_settings = DeviceSettings(self.leasing)
        self.deciding = Deciding(self.leasing, self.turns)
        # In the order in which what is due is passed.
        self.deadlines: tuple[Deadlines[Any], ...] = (
            *(self.memory.calms, self.memory.leavers, self.waiters.short_turns.starts),
            *(self.leasing.stages.dues, self.waiters.wakes),
        )

    @property
    def now(self) -> int:
        return self.rules.now

    @property
    def epoch(self) -> int:
        """The epoch of the next lease."""
        return self.leasing.epoch

    def handle(self, event: Event, now: int) -> list[Action]:
        """Take one event; returns what to do, in order. A clock that steps back stands still."""
        rules, effects = self.rules, self.effects
        now = rules.now = rules.where.now = max(now, rules.now)
        effects.actions, effects.granted = [], {}
        if rules.charges.pausing.heap:
            rules.charges.pausing.passed(now)
        if rules.grace_until and now >= rules.grace_until and type(event) is Tick:
            self.deciding.rejoin()
        if isinstance(event, OfTenant):
            tenant = self.tenants.get(event.tenant)
            if tenant is not None:
                OF_TENANT[type(event)](self.tenant_changes, tenant, event)
        elif isinstance(event, OfDevice):
            self.device_settings.apply(event)
        else:
            OF_NODE[type(event)](self, event)
        for deadlines in self.deadlines:
            if deadlines.heap and deadlines.heap[0][0] <= now:
                deadlines.passed(now)
        if rules.news:
            self.device_settings.follow()
        self.deciding.decide()
        if isinstance(event, Released) and rules.where.of and event.tenant in self.tenants:
            self.memory.bring_back(self.tenants[event.tenant])
        if effects.stirred:
            self.memory.move()
        return effects.actions

    def _hurry(self, now: int) -> None:
        for tenant in self.waiters.short_turns.begin(now):
            self.waiters.hurry(tenant)
            self.leasing.contention.hurry(tenant)

    def next_deadline(self) -> int | None:
        """When a Tick is due at the latest, or None."""
        found = self.rules.grace_until or None
        for deadlines in self.deadlines:
            if deadlines.heap:
                first = deadlines.first()
                if first is not None and (found is None or first < found):
                    found = first
        return found

    def usage(self, tenant_id: int, now: int) -> dict[str, Usage]:
        """What the tenant has had of each device up to now. This changes nothing."""
        return self.tenants[tenant_id].usage_at(max(now, self.now), self.devices)

    def refusal(self, event: Opened) -> str | None:
        """Why the policy would not have this tenant; None: it may open. This changes nothing."""
        tenant = tenant_of(event)
        return self.rules.policies.of(tenant).admit(self.rules, tenant)

    def lacks_share(self, event: Opened) -> str | None:
        """Why this tenant, if it opens, waits for its share; None: it does not. This changes
        nothing."""
        return self.rules.shares.lacks(tenant_of(event))

    def policy_state(self, tenant_id: int, now: int) -> PolicyState:
        """What the tenant's policy remembers of it up to now. This changes nothing."""
        return self.rules.charges.state(self.tenants[tenant_id], max(now, self.now))

    def understands(self, event: Opened, before: PolicyState) -> bool:
        """Whether the policy of this tenant, if it opens, can use what one remembered before.
        This changes nothing."""
        return self.rules.charges.understood(tenant_of(event), before)


OF_NODE: dict[type, Callable[[Arbiter, Any], None]] = {
    Opened: lambda arbiter, event: arbiter.tenant_changes.open(event),
    Listens: lambda arbiter, event: arbiter.deciding.begin_grace(event.grace_ns),
    CameBack: lambda arbiter, _: arbiter.deciding.prolong_grace(),
    Rejoined: lambda arbiter, _: arbiter.deciding.rejoin(),
    DrainLimitSet: lambda arbiter, event: arbiter.rules.limit_drains(event.drain_ns),
    Tick: lambda _, __: None,
}
