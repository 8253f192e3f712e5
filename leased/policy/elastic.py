"""Shares of a device's time: a minimum that is kept, a maximum that is enforced.

Tenants are selected as in KubeShare (Yeh et al., HPDC 2020, section 4.5). A tenant at its limit
does not run. Of the others the one that is farthest below its request goes first. When all have
what they requested, the one that has had least goes first. So each tenant gets what it requested,
and what is left is divided evenly.

KubeShare looks at the time that a tenant has held the device within a window. Such a window repeats
what happened in it: a tenant that was once far below its request runs for long without a break,
and does so again whenever that run leaves the window. Here each tenant has three accounts instead,
in ns of device time, which are as exact and forget at once what is too long ago:
- owed: what its request would have given it while it held or waited, less what it has had. The
  request is counted against lease time of the device, so handoffs delay all tenants alike; while
  its limit keeps the tenant from the device it is counted against all time, since nobody else may
  want the device then. Tenants that are owed something are served first, in the order in which
  they should have had it (earliest deadline first, which keeps all requests as long as they are at
  most 1 together).
- over: what it has had beyond its limit. When a turn has brought this up to the most that is
  allowed, the turn ends, and the tenant comes back when it has fallen to 0.
- level: its lease time as start-time fair queueing counts it (Goyal et al., 1996). A tenant that
  begins to wait has at least the level at which the last turns began that were of time that
  nobody had requested.
The whole restore and the whole drain count as time that the tenant has had, so a tenant whose long
kernel exceeds its turn pays that back. An idle tenant yields and is charged nothing from then on.
After a moment it is owed nothing more either; when it comes back its request counts from then on.

A turn is as long as the shorter quantum of the holder and the waiter. It is longer as long as the
holder is still the tenant that should run, and shorter if the waiter is owed more than a turn. So
with requests of 0.1 and 0.9 and quanta of 100 ms one runs for 100 ms and the other for 900 ms.

Where tenants run side by side the GPU's own time slices keep their shares. Such time never raises
what a tenant is owed, nor what it has had beyond its limit.

The bound: a tenant that requests nothing may have to wait for those that do. After PATIENCE_NS it
is served as if it had been owed something since then. Tenants that have been owed something for
longer have a turn before it. So a waiter with k competitors waits for at most (k + 1) times
PATIENCE_NS, a turn (of at most that time, or a quantum), a restore and four drains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, ClassVar

from leased.core.policy import Had, Policy, Spec, View
from leased.policy import saved
from leased.policy.elastic_account import LEAST_NS, PATIENCE_NS, Account, is_saved
from leased.policy.registry import register

PRICE = 20  # a quantum is at least this many times as long as its handoff
SHORT_NS = 20_000_000  # a turn is at least so long, even if a waiter is owed more than the holder
AFTER_ALL = 1 << 90  # places of tenants that are owed nothing come after those of all others


@register
class Elastic(Policy):
    """levels: by device, the level of the tenants that last had time which nobody had requested."""

    name: ClassVar[str] = "elastic"
    charges: ClassVar[bool] = True
    prompt: ClassVar[bool] = True
    shares: ClassVar[bool] = True

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.levels: dict[str, float] = {}

    def opened(self, tenant: Spec) -> None:
        account = self.accounts.get(tenant.id)
        if account is None:
            account = self.accounts[tenant.id] = Account(tenant.request, tenant.limit, tenant.gang)
        account.gang = tenant.gang
        for device in tenant.gang:
            self.levels.setdefault(device, 0.0)
        account.turn = tenant.quantum_ns
        account.level = max(account.level, self._level(account))

    def closed(self, tenant: int) -> None:
        self.accounts.pop(tenant, None)
        if not self.accounts:  # no tenant is left for which levels matter
            self.levels.clear()

    # -- what tenants have had ------------------------------------------------------------

    def charged(self, tenant: int, had: Had, now: int) -> None:
        account = self.accounts[tenant]
        held = account.charge(had, now)
        if held and account.of_rest and account.start is not None:
            self._raise_levels(account.gang, account.start)
        account.bound(self._level(account))

    def _raise_levels(self, devices: Iterable[str], level: float) -> None:
        levels = self.levels
        for device in devices:
            if level > levels.get(device, 0.0):
                levels[device] = level

    def _level(self, account: Account) -> float:
        """The lowest level that the tenant may have."""
        return min(map(self.levels.__getitem__, account.gang))

    # -- who is next ------------------------------------------------------------------------

    def order(self, view: View, tenant: Spec) -> int:
        account = self.accounts[tenant.id]
        account.turn = max(tenant.quantum_ns, PRICE * view.handoff_ns(tenant))
        account.wait(view.now)
        account.bound(self._level(account))
        due = account.due(view.now)
        account.of_rest = due > view.now
        return AFTER_ALL + round(account.level) if account.of_rest else due

    def wake_at(self, view: View, waiter: Spec) -> int | None:
        # While nobody holds its devices, what it is owed does not grow. Without a shortest pause it
        # would be asked again and again.
        due = self.accounts[waiter.id].due(view.now)
        return max(due, view.now + LEAST_NS) if due > view.now else None

    def barred_until(self, view: View, waiter: Spec) -> int | None:
        account = self.accounts[waiter.id]
        if account.limit < 1:
            account.wait(view.now)
        over = account.over_by(view.now)
        account.barred = account.limit < 1 and over > 0
        if not account.barred:
            return None
        return view.now + max(LEAST_NS, round(over / account.limit))

    def is_limited(self, holder: Spec) -> bool:
        return holder.limit < 1

    # -- how long -----------------------------------------------------------------------------

    def quantum(self, view: View, holder: Spec, waiter: Spec | None, asked_ns: int) -> int:
        account = self.accounts[holder.id]
        if waiter is None and account.limit >= 1:
            return asked_ns
        so_far, longest = view.held_ns(holder), PATIENCE_NS
        if waiter is not None:
            other = self.accounts.get(waiter.id)
            if other is None:  # it has another policy: who came first is served first
                return asked_ns
            ahead = self._stays_ahead(account, other, view.now)
            longest = max(
                self._least(min(asked_ns, waiter.quantum_ns), account, other),
                so_far + min(ahead, PATIENCE_NS),
            )
        if account.limit < 1:
            longest = min(longest, so_far + self._within_limit(account, view.now))
        return longest

    def _stays_ahead(self, holder: Account, waiter: Account, now: int) -> int:
        """For how long the holder should still run rather than the waiter."""
        own, other = holder.due_in, waiter.due(now) - now
        until_level = waiter.level - holder.level
        if own is None or own >= 0:
            return 0 if other <= 0 else round(max(0, min(until_level, other)))
        # While the holder runs for a time, its deadline moves on by (1 / request - 1) of that time.
        # first: until the waiter's deadline comes before the holder's.
        first = max(0.0, (other - own) * holder.request)
        if other <= 0:
            return round(first)
        part = 1 - holder.request
        owed_for = -own * holder.request / part if part > 0 else PATIENCE_NS
        return round(min(max(owed_for, until_level), max(other, first)))

    def _least(self, turn: int, holder: Account, waiter: Account) -> int:
        """How long a turn is at least. A waiter that is owed much, because others ran in its short
        pauses, does not have to wait for a whole turn of theirs."""
        behind = waiter.owed - max(0.0, holder.owed) - turn
        return turn if behind <= 0 else max(min(SHORT_NS, turn), turn - round(behind))

    def _within_limit(self, account: Account, now: int) -> int:
        """For how long the limit lets a holder go on."""
        left = (account.burst - account.over_by(now)) / (1 - account.limit)
        return max(LEAST_NS, round(left))

    # -- for the next daemon --------------------------------------------------------------------

    def dump(self, tenants: Collection[int] | None = None) -> bytes:
        chosen = self.accounts if tenants is None else [n for n in tenants if n in self.accounts]
        return saved.write({n: self._saved(self.accounts[n]) for n in chosen})

    def _saved(self, account: Account) -> dict[str, int]:
        return account.saved(self._level(account))

    def load(self, data: bytes) -> bool:
        return saved.read(data, self._load)

    def _load(self, tenant: int, values: dict[str, Any]) -> bool:
        good = is_saved(values)
        account = self.accounts.get(tenant)
        if good and account is not None:
            account.restore(values, self._level(account))
        return good
