"""What tenants have had of each device, and what an even division would have given them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from leased.core.account import Account
from leased.core.deadlines import Deadlines
from leased.core.division import Division, advance
from leased.core.policies import Policies
from leased.core.policy import Had
from leased.core.state import Tenant

PAUSE_NS = 100_000_000  # a shorter one is none


class Charges:
    """Tenants that heed no lock compete with none, and are not entered here."""

    def __init__(self, devices: Iterable[str], now: int, policies: Policies):
        self.divisions = {uuid: Division(uuid, now) for uuid in devices}
        self.policies = policies
        self.accounts: dict[int, Account] = {}
        self.pausing: Deadlines[int] = Deadlines()  # until when those who pause count as waiting

    def begin(self, tenant: Tenant, holds: bool, now: int) -> None:
        """It holds its gang from now on, or waits for it in the line."""
        self._pass_pauses(now)
        account = self.accounts.get(tenant.id)
        if account is not None and account.gang == tenant.gang:
            self._charge(tenant, now)
            self.pausing.put(tenant.id, None)
            account.turn(holds)
            return
        divisions = [self.divisions[uuid] for uuid in tenant.gang]
        if account is not None:
            self._remove(tenant, now)
        else:
            self._charge_holders(divisions, now)
        advance(divisions, now)
        account = self.accounts[tenant.id] = Account(tenant, tenant.gang, holds, now, divisions)
        account.note()
        account.enter()

    def charge(self, tenant: Tenant, now: int) -> None:
        """Tell the policy what the tenant has had up to now."""
        self._pass_pauses(now)
        self._charge(tenant, now)

    def tell(self, tenant: Tenant, now: int) -> None:
        """The same, for a policy that is to be asked, if it wants to know."""
        if self.policies.of(tenant).charges:
            self.charge(tenant, now)
        else:
            self._pass_pauses(now)

    def _charge(self, tenant: Tenant, now: int) -> None:
        account = self.accounts.get(tenant.id)
        if account is None or account.at == now:
            return
        divisions, account.at = account.divisions, now
        advance(divisions, now)
        policy = self.policies.of(tenant)
        if policy.charges:
            policy.charged(tenant.id, account.had(divisions), now)
        account.note()

    def due(self, tenant: int, now: int) -> Had | None:
        """What the policy has not been told yet; None: nothing. This changes nothing."""
        account = self.accounts.get(tenant)
        if account is None:
            return None
        divisions = [replace(division) for division in account.divisions]
        advance(divisions, now)
        return account.had(divisions)

    def end(self, tenant: Tenant, now: int) -> None:
        """The tenant no longer holds, or no longer waits. For a while it counts as if it waited,
        since a tenant that pauses between two kernels wants no less than one that does not."""
        self.charge(tenant, now)
        account = self.accounts.get(tenant.id)
        if account is None:
            return
        account.turn(False)
        self.pausing.put(tenant.id, now + PAUSE_NS)

    def forget(self, tenant: Tenant, now: int) -> None:
        """The tenant no longer counts."""
        account = self.accounts.get(tenant.id)
        if account is not None:
            self._remove(tenant, now)
            self._charge_holders(account.divisions, now)

    def _remove(self, tenant: Tenant, now: int) -> None:
        self._charge(tenant, now)
        account = self.accounts.pop(tenant.id)
        self.pausing.put(tenant.id, None)
        advance(account.divisions, now)
        account.leave()

    def _charge_holders(self, divisions: Iterable[Division], now: int) -> None:
        """A tenant begins or ceases to want these devices. First the policies that must know it
        are charged for what was had until now, since it was divided among those who wanted the
        devices until now."""
        if not self.policies.prompt():
            return
        holders: dict[int, Tenant] = {}  # those of the first device first
        for division in divisions:
            if division.charged_at != now:
                division.charged_at = now
                holders |= division.holding
        for holder in holders.values():
            if self.policies.of(holder).prompt:
                self._charge(holder, now)

    def _pass_pauses(self, now: int) -> None:
        """Tenants whose pause has become too long no longer count as waiters."""
        while (when := self.pausing.first()) is not None and when <= now:
            tenant = self.pausing.pop(now)
            if tenant is not None:
                self.forget(self.accounts[tenant].tenant, when)

    def competitors(self, gang: Iterable[str]) -> int:
        """How many hold or want the most wanted of these devices."""
        divisions = self.divisions
        return max([divisions[uuid].wanting for uuid in gang])
