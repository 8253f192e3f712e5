"""What tenants have had of each device, what an even division would have given them, and what
policies remember of that."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from leased.core.deadlines import Deadlines
from leased.core.events import PolicyRestored
from leased.core.policies import Policies
from leased.core.policy import Had, Policy, PolicyState
from leased.core.state import FREE, Device, Tenant

PAUSE_NS = 100_000_000  # a shorter one is none

# What a device's clock showed: the time in which it was leased, what an even division has given
# each, and what each holder has had.
Shows = tuple[int, int, int]


def shown(device: Device) -> Shows:
    clock = device.clock
    return clock.leased, clock.even, clock.held


@dataclass
class Account:
    """A tenant that holds or waits, or did a moment ago. at: when it was last charged. before:
    what its devices' clocks showed at that time. sliced: time slices of the GPU have kept its share
    since then."""

    tenant: Tenant
    devices: tuple[Device, ...]
    holds: bool
    at: int
    before: list[Shows]
    sliced: bool

    def had(self, now: list[Shows]) -> Had:
        """What the tenant has had since it was charged. now: what its devices' clocks show now."""
        both = list(zip(now, self.before))
        leased = sum([one[0] - other[0] for one, other in both])
        even = [one[1] - other[1] for one, other in both]
        gang = tuple([device.uuid for device in self.devices])
        if not self.holds:
            return Had(gang, leased, even)
        return Had(gang, leased, even, [one[2] - other[2] for one, other in both], self.sliced)


class Charges:
    """Tenants that heed no lock compete with none, and are not entered here. on: some policy in use
    wants to know what tenants have had; otherwise nobody is entered. charged_at: by device, when
    its holders were last charged whose policies must know it at once."""

    def __init__(self, devices: Mapping[str, Device], policies: Policies):
        self.devices = devices
        self.policies = policies
        self.on = any(policy.charges for policy in policies.in_use.values())
        self.accounts: dict[int, Account] = {}
        # Until when those who pause count as waiting.
        self.pausing: Deadlines[int] = Deadlines(self.pass_pauses)
        self.charged_at = dict.fromkeys(devices, -1)

    def follow(self, tenants: Iterable[Tenant], now: int) -> None:
        """Other policies are in use than before."""
        on = any(policy.charges for policy in self.policies.in_use.values())
        if on == self.on:
            return
        self.on = on
        for account in list(self.accounts.values()) if not on else ():
            self._remove(account, now)
        for tenant in tenants if on else ():
            if tenant.lease is not None:
                self.begin(tenant, True, now)
            elif tenant.place is not None or tenant.barred:
                self.begin(tenant, False, now)

    def begin(self, tenant: Tenant, holds: bool, now: int) -> None:
        """It holds its gang from now on, or waits for it in the line."""
        if not self.on or tenant.heeds == FREE:
            return
        account = self.accounts.get(tenant.id)
        if account is not None and account.devices == tenant.devices:
            self._charge(tenant, now)
            self.pausing.put(tenant.id, None)
            account.holds, account.sliced = holds, tenant.sliced
            return
        if account is not None:
            self._remove(account, now)
        else:
            self._charge_holders(tenant.devices, now)
        for device in tenant.devices:
            device.clock.advance(now)
            device.clock.wanting += 1
        before = [shown(device) for device in tenant.devices]
        self.accounts[tenant.id] = Account(
            *(tenant, tenant.devices, holds, now, before), tenant.sliced
        )

    def charge(self, tenant: Tenant, now: int) -> None:
        """Tell the policy what the tenant has had up to now, if it wants to know."""
        if self.on:
            self._charge(tenant, now)

    def _charge(self, tenant: Tenant, now: int) -> None:
        account = self.accounts.get(tenant.id)
        if account is None or account.at == now:
            return
        account.at = now
        for device in account.devices:
            device.clock.advance(now)
        shows = [shown(device) for device in account.devices]
        policy = self.policies.of(tenant)
        if policy.charges:
            policy.charged(tenant.id, account.had(shows), now)
        account.before = shows

    def slice_again(self, now: int) -> None:
        """Time slices of the GPU may keep other shares from now on than before."""
        for account in self.accounts.values():
            if account.tenant.sliced != account.sliced:
                self._charge(account.tenant, now)
                account.sliced = not account.sliced

    def due(self, tenant: int, now: int) -> Had | None:
        """What the policy has not been told yet; None: nothing. This changes nothing."""
        account = self.accounts.get(tenant)
        if account is None:
            return None
        later = [device.clock.later(now) for device in account.devices]
        return account.had([(clock.leased, clock.even, clock.held) for clock in later])

    def end(self, tenant: Tenant, now: int) -> None:
        """The tenant no longer holds, or no longer waits. For a while it counts as if it waited,
        since a tenant that pauses between two kernels wants no less than one that does not."""
        if not self.on:
            return
        self.charge(tenant, now)
        account = self.accounts.get(tenant.id)
        if account is not None:
            account.holds = False
            self.pausing.put(tenant.id, now + PAUSE_NS)

    def forget(self, tenant: Tenant, now: int) -> None:
        """The tenant no longer counts."""
        account = self.accounts.get(tenant.id)
        if account is not None:
            self._remove(account, now)
            self._charge_holders(account.devices, now)

    def _remove(self, account: Account, now: int) -> None:
        tenant = account.tenant
        self._charge(tenant, now)
        del self.accounts[tenant.id]
        self.pausing.put(tenant.id, None)
        for device in account.devices:
            device.clock.advance(now)
            device.clock.wanting -= 1

    def _charge_holders(self, devices: Iterable[Device], now: int) -> None:
        """A tenant begins or ceases to want these devices. First the policies that must know it
        are charged for what was had until now, since it was divided among those who wanted the
        devices until now. Whoever begins to hold is charged then too, so at one time nobody has to
        be charged twice."""
        for device in devices if self.policies.prompt else ():
            if self.charged_at[device.uuid] == now:
                continue
            self.charged_at[device.uuid] = now
            for holder in device.holders.values():
                if holder.heeds and self.policies.of(holder).prompt:
                    self._charge(holder, now)

    def pass_pauses(self, now: int) -> None:
        """Tenants whose pause has become too long no longer count as waiters. Before anything else
        is looked at: what comes later is divided without them."""
        while (when := self.pausing.first()) is not None and when <= now:
            tenant = self.pausing.pop(now)
            if tenant is not None:
                self.forget(self.accounts[tenant].tenant, when)

    # -- what policies remember ---------------------------------------------------------

    def state(self, tenant: Tenant, now: int) -> PolicyState:
        """What the tenant's policy would remember if the tenant were charged now. This changes
        nothing, since a policy object is made for the answer."""
        policy = self.policies.of(tenant)
        found = self._like(policy, tenant)
        found.load(policy.dump([tenant.id]))
        if (had := self.due(tenant.id, now)) is not None:
            found.charged(tenant.id, had, now)
        return PolicyState(policy.name, found.dump([tenant.id]).decode())

    def understood(self, tenant: Tenant, before: PolicyState) -> bool:
        """The tenant's policy can read this state, or the state is of another policy. This changes
        nothing."""
        policy = self.policies.of(tenant)
        return policy.name != before.policy or self._like(policy, tenant).load(_data(before.state))

    def restore(self, tenant: Tenant, event: PolicyRestored) -> None:
        policy = self.policies.of(tenant)
        if policy.name == event.policy:
            policy.load(_data(event.state))

    def _like(self, policy: Policy, tenant: Tenant) -> Policy:
        """A new policy object of the same name that knows this tenant alone."""
        made = self.policies.make(policy.name)
        made.opened(tenant)
        return made


def _data(state: str) -> bytes:
    return state.encode(errors="replace")
