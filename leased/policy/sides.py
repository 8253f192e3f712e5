"""On which devices tenants with shares run side by side, and what each of them has had there."""

from __future__ import annotations

from leased.core.policy import Measured
from leased.policy.elastic_account import Account
from leased.policy.side import FULL, SLACK, Claim, Side


class Sides:
    """there: by device, the accounts of its tenants. with_share: how many of these have a share.
    of: by device, if tenants with a share have it, once something was measured there."""

    def __init__(self) -> None:
        self.there: dict[str, dict[int, Account]] = {}
        self.with_share: dict[str, int] = {}
        self.of: dict[str, Side] = {}

    def opened(self, tenant: int, account: Account) -> None:
        """The tenant has been opened, or has another gang."""
        for device in [device for device, there in self.there.items() if tenant in there]:
            if device not in account.gang:
                self._leave(tenant, device)
        for device in account.gang:
            there = self.there.setdefault(device, {})
            if tenant not in there and account.has_share:
                self.with_share[device] = self.with_share.get(device, 0) + 1
            there[tenant] = account

    def closed(self, tenant: int, account: Account) -> None:
        for device in account.gang:
            self._leave(tenant, device)

    def _leave(self, tenant: int, device: str) -> None:
        there = self.there[device]
        if there.pop(tenant).has_share:
            self.with_share[device] -= 1
            if not self.with_share[device]:
                del self.with_share[device]
        if not self.measures(device):
            self.of.pop(device, None)
        elif device in self.of:
            self.of[device].closed(tenant)
        if not there:
            del self.there[device]

    def is_on(self, device: str) -> bool:
        """Whether tenants with a share run side by side there."""
        side = self.of.get(device)
        return side is not None and side.on

    def measures(self, device: str) -> bool:
        """Whether a tenant with a share has the device."""
        return device in self.with_share

    def why(self, device: str) -> str:
        side = self.of.get(device)
        return "" if side is None else side.why

    def take(self, work: Measured) -> float | None:
        """Charge what each tenant has had side by side, now that it was measured; where it was not,
        it is divided evenly. Returns the lowest level among the tenants of which it is known."""
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
        """Whether the device changes between side by side and turns."""
        there = self.there[work.device]
        side = self.of.setdefault(work.device, Side(now))
        claims = {tenant: _claim(account, now) for tenant, account in there.items()}
        changed = side.look(work, claims, now)
        if changed and side.on:  # time that they had beyond their requests no longer counts
            for account in there.values():
                account.owed, account.lost = max(account.owed, 0.0), 0.0
        return changed


def _claim(account: Account, now: int) -> Claim:
    over = account.over_by(now) - account.savings
    return Claim(account.request, account.limit, account.lost, over, account.waited)
