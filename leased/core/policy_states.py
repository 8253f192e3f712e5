"""What policies remember of tenants, stored for the next daemon and taken over from the previous
one."""

from __future__ import annotations

from leased.core.policy import Policy, PolicyState
from leased.core.rules import Rules
from leased.core.state import Tenant
from leased.core.tenant_events import PolicyRestored


class PolicyStates:
    """Questions change nothing, since a policy object is made for each answer."""

    def __init__(self, rules: Rules):
        self.rules = rules

    def of(self, tenant: Tenant, now: int) -> PolicyState:
        """What the tenant's policy would remember if the tenant were charged now."""
        policy, now = self.rules.policies.of(tenant), max(now, self.rules.now)
        found = self._like(policy, tenant)
        found.load(policy.dump([tenant.id]))
        if (had := self.rules.charges.due(tenant.id, now)) is not None:
            found.charged(tenant.id, had, now)
        return PolicyState(policy.name, found.dump([tenant.id]).decode())

    def understood(self, tenant: Tenant, before: PolicyState) -> bool:
        """The tenant's policy can read this state, or the state is of another policy."""
        policy = self.rules.policies.of(tenant)
        return policy.name != before.policy or self._like(policy, tenant).load(_data(before.state))

    def restore(self, tenant: Tenant, event: PolicyRestored) -> None:
        policy = self.rules.policies.of(tenant)
        if policy.name == event.policy:
            policy.load(_data(event.state))

    def _like(self, policy: Policy, tenant: Tenant) -> Policy:
        """A new policy object of the same name that knows this tenant alone."""
        made = self.rules.policies.make(policy.name)
        made.opened(tenant)
        return made


def _data(state: str) -> bytes:
    return state.encode(errors="replace")
