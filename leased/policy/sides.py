"""Which devices tenants with shares have side by side, and what each of them has had there."""

from __future__ import annotations

from leased.core.policy import Measured
from leased.policy.elastic_account import Account
from leased.policy.side import FULL, SLACK, Claim, Side


class Sides:
    """there: by device, the tenants that have it. of: by device with tenants that have a share,
    once something was measured there."""

    def __init__(self) -> None:
        self.there: dict[str, dict[int, Account]] = {}
        self.of: dict[str, Side] = {}

    def opened(self, tenant: int, account: Account) -> None:
        """The tenant is here, or has another gang."""
        for device in [device for device, there in self.there.items() if tenant in there]:
            if device not in account.gang:
                self._leave(tenant, device)
        for device in account.gang:
            self.there.setdefault(device, {})[tenant] = account

    def closed(self, tenant: int, account: Account) -> None:
        for device in account.gang:
            self._leave(tenant, device)

    def _leave(self, tenant: int, device: str) -> None:
        there = self.there[device]
        del there[tenant]
        if not self.measures(device):
            self.of.pop(device, None)
        elif device in self.of:
            self.of[device].closed(tenant)
        if not there:
            del self.there[device]

    def is_on(self, device: str) -> bool:
        """Tenants with a share run side by side there."""
        side = self.of.get(device)
        return side is not None and side.on

    def measures(self, device: str) -> bool:
        """A tenant with a share is there."""
        return any(account.has_share for account in self.there.get(device, {}).values())

    def why(self, device: str) -> str:
        side = self.of.get(device)
        return "" if side is None else side.why

    def take(self, work: Measured) -> float | None:
        """What each has had side by side is known now; what is not counts as divided evenly.
        Returns the lowest level of those of whom it is known."""
        there = self.there[work.device]
        slack = SLACK if work.busy is not None and work.busy >= FULL else None
        known = (
            [one for one in work.beside if one.tenant in there] if self.is_on(work.device) else []
        )
        for one in known:
            account = there[one.tenant]
            part = 1 / len(account.gang)
            account.settle(part * one.worked_ns, part * one.together_ns, slack)
            account.pending = max(0.0, account.pending - part * one.even_ns)
            account.together = max(0.0, account.together - part * one.together_ns)
        of_whom = {one.tenant for one in known}
        for tenant, account in there.items():
            if tenant not in of_whom:
                account.settle(account.pending, account.together, None)
            if tenant not in of_whom or len(account.gang) == 1:
                account.pending = account.together = 0.0
        return min([there[tenant].level for tenant in of_whom], default=None)

    def look(self, work: Measured, now: int) -> bool:
        """Whether other tenants than before may run side by side from now on."""
        there = self.there[work.device]
        side = self.of.setdefault(work.device, Side(now))
        claims = {tenant: _claim(account, now) for tenant, account in there.items()}
        changed = side.look(work, claims, now)
        if changed and side.on:  # what they had beyond their requests does not count any more
            for account in there.values():
                account.owed, account.lost = max(account.owed, 0.0), 0.0
        return changed


def _claim(account: Account, now: int) -> Claim:
    over = account.over_by(now) - account.savings
    return Claim(account.request, account.limit, account.lost, over, account.waited)
