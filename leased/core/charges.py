"""What tenants have had of each device, and what an even division would have given them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from leased.core.deadlines import Deadlines
from leased.core.policy import Policies
from leased.core.state import Tenant

PAUSE_NS = 100_000_000  # a shorter one is none


@dataclass
class Division:
    """The time of one device: `held` is what each holder has had of it since the start, `even`
    what each would have had that held it or waited for it. Remainders are carried over, so the
    sums do not depend on how often they are brought up to date."""

    at: int
    holders: int = 0
    waiters: int = 0
    held: int = 0
    even: int = 0
    held_rest: int = 0
    even_rest: int = 0

    def advance(self, now: int) -> None:
        passed, self.at = now - self.at, now
        if self.holders:
            more, self.held_rest = divmod(passed + self.held_rest, self.holders)
            self.held += more
            more, self.even_rest = divmod(passed + self.even_rest, self.holders + self.waiters)
            self.even += more


@dataclass
class Account:
    """One tenant that holds or waits, or did a moment ago: how its devices' divisions stood when
    it was charged."""

    tenant: Tenant
    holds: bool
    marks: dict[str, tuple[int, int]]


class Charges:
    """Tenants that heed no lock compete with nobody: they are not to be in here."""

    def __init__(self, devices: Iterable[str], now: int, policies: Policies):
        self.divisions = {uuid: Division(now) for uuid in devices}
        self.policies = policies
        self.accounts: dict[int, Account] = {}
        self.pausing: Deadlines[int] = Deadlines()  # until when those who pause count as waiting

    def begin(self, tenant: Tenant, holds: bool, now: int) -> None:
        """It holds its gang from now on, or waits for it in the line."""
        self._pass_pauses(now)
        self.forget(tenant, now)
        marks = {}
        for uuid in tenant.gang:
            division = self.divisions[uuid]
            division.advance(now)
            division.holders += holds
            division.waiters += not holds
            marks[uuid] = division.held, division.even
        self.accounts[tenant.id] = Account(tenant, holds, marks)

    def charge(self, tenant: Tenant, now: int) -> None:
        """Tell the policy what the tenant has had up to now."""
        self._pass_pauses(now)
        self._charge(tenant, now)

    def _charge(self, tenant: Tenant, now: int) -> None:
        account = self.accounts.get(tenant.id)
        if account is None:
            return
        policy = self.policies.of(tenant)
        for uuid, (held, even) in account.marks.items():
            division = self.divisions[uuid]
            division.advance(now)
            had = division.held - held if account.holds else 0
            policy.charged(tenant.id, uuid, had, division.even - even, now)
            account.marks[uuid] = division.held, division.even

    def due(self, tenant: int, now: int) -> list[tuple[str, int, int]]:
        """By device what the policy has not been told yet: what the tenant has had up to now, and
        what an even division would have given it. This changes nothing."""
        account = self.accounts.get(tenant)
        found = []
        for uuid, (held, even) in account.marks.items() if account else ():
            division = replace(self.divisions[uuid])
            division.advance(now)
            had = division.held - held if account and account.holds else 0
            found.append((uuid, had, division.even - even))
        return found

    def end(self, tenant: Tenant, now: int) -> None:
        """It does not hold, or does not wait, any more. For a while it counts as if it waited:
        who pauses between two kernels wants no less than who does not."""
        self.charge(tenant, now)
        account = self.accounts.get(tenant.id)
        if account is None:
            return
        for uuid in account.marks:
            division = self.divisions[uuid]
            division.holders -= account.holds
            division.waiters += account.holds
        account.holds = False
        self.pausing.put(tenant.id, now + PAUSE_NS)

    def forget(self, tenant: Tenant, now: int) -> None:
        """It counts no more from now on."""
        self._charge(tenant, now)
        account = self.accounts.pop(tenant.id, None)
        if account is None:
            return
        self.pausing.put(tenant.id, None)
        for uuid in account.marks:
            division = self.divisions[uuid]
            division.advance(now)
            division.holders -= account.holds
            division.waiters -= not account.holds

    def _pass_pauses(self, now: int) -> None:
        """Those who have paused for longer counted until then."""
        while (when := self.pausing.first()) is not None and when <= now:
            tenant = self.pausing.pop(now)
            if tenant is not None:
                self.forget(self.accounts[tenant].tenant, when)

    def competitors(self, gang: Iterable[str]) -> int:
        """How many hold or want the most wanted of these devices."""
        return max(self.divisions[uuid].holders + self.divisions[uuid].waiters for uuid in gang)
