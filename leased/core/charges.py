"""What tenants have had of each device, and what an even division would have given them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import sub
from typing import Any

from leased.core.deadlines import Deadlines
from leased.core.policies import Policies
from leased.core.policy import Had, Spec
from leased.core.state import Tenant

PAUSE_NS = 100_000_000  # a shorter one is none


@dataclass(slots=True)
class Division:
    """The time of one device: `held` is what each holder has had of it since the start, `even`
    what each would have had that held it or waited for it, of whom there are `wanting`. Remainders
    are carried over, so the sums do not depend on how often they are brought up to date. leased:
    the time in which anybody held it.
    holding: the holders. charged_at: when all of these were last charged whose policies must know
    it at once. Whoever begins to hold is charged then too, so at that time nobody is left to
    charge."""

    device: str
    at: int
    wanting: int = 0
    leased: int = 0
    held: int = 0
    even: int = 0
    held_rest: int = 0
    even_rest: int = 0
    holding: dict[int, Tenant] = field(default_factory=dict)
    charged_at: int | None = None

    def advance(self, now: int) -> None:
        """Somebody has held it until now."""
        passed, holders = now - self.at, len(self.holding)
        self.leased += passed
        if holders == 1:
            self.held += passed + self.held_rest
            self.held_rest = 0
        else:
            more, self.held_rest = divmod(passed + self.held_rest, holders)
            self.held += more
        more, self.even_rest = divmod(passed + self.even_rest, self.wanting)
        self.even += more


# What divisions show: the sum of their leased times, and lists with one amount of each of them. A
# few lists take a fraction of the time that many rows would. The first list is of even time. The
# other is only of a holder: what each holder has had.
Shows = tuple[int, tuple[list[int], ...]]
# The class with names, made three times as fast as by calling it.
HAD: Callable[[type[Had], tuple[Any, ...]], Had] = tuple.__new__


def shown(divisions: list[Division], holds: bool) -> Shows:
    """What they show now. holds: they are of a holder."""
    leased, even = sum([d.leased for d in divisions]), [d.even for d in divisions]
    if not holds:
        return leased, (even,)
    return leased, (even, [d.held for d in divisions])


def advance(divisions: Iterable[Division], now: int) -> None:
    """Bring all of them up to date."""
    for division in divisions:
        if division.at != now:
            if division.holding:
                division.advance(now)
            division.at = now


@dataclass(slots=True)
class Account:
    """A tenant that holds or waits, or did a moment ago. at: when it was last charged. before:
    what its devices' divisions showed at that time. sliced: the GPU's own time slices have kept
    its share since then."""

    tenant: Tenant
    gang: tuple[str, ...]
    holds: bool
    at: int
    divisions: list[Division]
    before: Shows
    sliced: bool

    def had(self, now: Shows) -> Had:
        """What the tenant has had since it was charged. now: what its divisions show now."""
        (leased, each), (leased_before, before) = now, self.before
        even = list(map(sub, each[0], before[0]))
        if not self.holds:
            return HAD(Had, (self.gang, leased - leased_before, even, (), False))
        held = list(map(sub, each[1], before[1]))
        return HAD(Had, (self.gang, leased - leased_before, even, held, self.sliced))

    def take(self) -> Had:
        """The same, and from now on it counts as charged."""
        now = shown(self.divisions, self.holds)
        had, self.before = self.had(now), now
        return had

    def enter(self) -> None:
        """Its devices' divisions count it from now on."""
        for division in self.divisions:
            division.wanting += 1
        if self.holds:
            self._hold()

    def leave(self) -> None:
        """They do not count it any more."""
        if self.holds:
            self._wait()
        for division in self.divisions:
            division.wanting -= 1

    def turn(self, holds: bool) -> None:
        """They count it, which has been charged, as a holder from now on, or as a waiter."""
        if holds != self.holds:
            self.holds = holds
            if holds:
                self.before = shown(self.divisions, holds)
                self._hold()
            else:
                leased, each = self.before
                self.before = leased, each[:1]
                self._wait()

    def _hold(self) -> None:
        number, tenant = self.tenant.id, self.tenant
        for division in self.divisions:
            division.holding[number] = tenant

    def _wait(self) -> None:
        number = self.tenant.id
        for division in self.divisions:
            del division.holding[number]


class Charges:
    """Tenants that heed no lock compete with none, and are not entered here. sliced: whether the
    GPU's own time slices keep a tenant's share now; see slice_again()."""

    def __init__(
        self,
        devices: Iterable[str],
        now: int,
        policies: Policies,
        sliced: Callable[[Tenant], bool],
    ):
        self.divisions = {uuid: Division(uuid, now) for uuid in devices}
        self.policies = policies
        self.sliced = sliced
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
            account.sliced = self.sliced(tenant)
            return
        divisions = [self.divisions[uuid] for uuid in tenant.gang]
        if account is not None:
            self._remove(tenant, now)
        else:
            self._charge_holders(divisions, now)
        advance(divisions, now)
        before = shown(divisions, holds)
        account = Account(
            *(tenant, tenant.gang, holds, now, divisions, before), self.sliced(tenant)
        )
        self.accounts[tenant.id] = account
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
            policy.charged(tenant.id, account.take(), now)
        else:
            account.before = shown(divisions, account.holds)

    def slice_again(self, now: int) -> None:
        """The GPU's own time slices may keep other shares from now on than before."""
        for account in self.accounts.values():
            sliced = self.sliced(account.tenant)
            if sliced != account.sliced:
                self._charge(account.tenant, now)
                account.sliced = sliced

    def due(self, tenant: int, now: int) -> Had | None:
        """What the policy has not been told yet; None: nothing. This changes nothing."""
        account = self.accounts.get(tenant)
        if account is None:
            return None
        divisions = [replace(division) for division in account.divisions]
        advance(divisions, now)
        return account.had(shown(divisions, account.holds))

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

    def competitors(self, tenant: Spec) -> int:
        """How many hold or want the most wanted of its devices."""
        account = self.accounts.get(tenant.id)
        if account is not None and account.gang == tenant.gang:
            return max([division.wanting for division in account.divisions])
        return max([self.divisions[uuid].wanting for uuid in tenant.gang])
