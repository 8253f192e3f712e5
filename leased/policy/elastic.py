"""Shares of a device's time: a minimum that is kept, a maximum that is enforced.

The selection is that of KubeShare (Yeh et al., HPDC 2020, section 4.5): who is at its limit does
not run; of the others who is farthest below its request goes first; when all have what they
requested, who has had least. So each has what it requested, and what is left is divided evenly.

KubeShare looks at the time that a tenant has held the device within a window. A window repeats
what happened in it: a tenant that was once far below its request runs for long without a break,
and again whenever that run leaves the window. Here each tenant has three accounts instead, in ns of
device time, which are as exact and forget at once what is too long ago:
- owed: what its request would have given it while it held or waited, less what it has had. The
  clock of its request is lease time of the device, so handoffs delay all alike; while its limit
  keeps it from the device it is all time, as nobody else may want it then. Who is owed
  something is served first, who should have had it first before the others (earliest deadline
  first, with which all requests are kept as long as they are at most 1 together).
- over: what it has had beyond its limit. It goes when a turn has made that as much as it does at
  most, and comes back when it is nothing.
- level: lease time that it has had, as start-time fair queueing counts it (Goyal et al., 1996): who
  begins to wait has at least the level that those who were served last of what was left had when
  their turns began.
All of a restore and all of a drain count as had, so who overshoots its turn by a long kernel pays
that back. Who is idle yields, and from then on is charged nothing; after a moment it is owed
nothing more either, and who comes back is owed what it requests from then on.

A turn is as long as the shorter quantum of the holder and the waiter, longer as long as the holder
is still the one that should run, and shorter where the waiter is owed more than a turn. So with
requests of 0.1 and 0.9 and quanta of 100 ms one runs for 100 ms and the other for 900 ms.

The bound: who requests nothing may have to wait for those that do. After PATIENCE_NS it is served
as if it were owed something since then. Those that are owed something for longer have a turn
before it, so a waiter with k competitors waits for (k + 1) times PATIENCE_NS, a turn (of at most
that time, or a quantum), a restore and four drains.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, ClassVar

from leased.core.policy import Had, Measured, Spec, View
from leased.policy import saved
from leased.policy.elastic_account import LEAST_NS, PATIENCE_NS, Account, is_saved
from leased.policy.registry import register
from leased.policy.sides import Sides

PRICE = 20  # as a quantum is at least so many times its handoff
SHORT_NS = 20_000_000  # no turn of a holder that runs on though another is owed more is shorter
AFTER_ALL = 1 << 90  # between the places of those who are owed something and of the others


@register
class Elastic:
    """levels: by device, the level of those who were served last with what was left. sides: where
    those with a share run side by side."""

    name: ClassVar[str] = "elastic"
    shares: ClassVar[bool] = True

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.levels: dict[str, float] = {}
        self.sides = Sides()

    def admit(self, view: View, tenant: Spec) -> str | None:
        return None

    def opened(self, tenant: Spec) -> None:
        account = self.accounts.get(tenant.id)
        if account is None:
            account = self.accounts[tenant.id] = Account(tenant.request, tenant.limit, tenant.gang)
        account.gang = tenant.gang
        self.sides.opened(tenant.id, account)
        for device in tenant.gang:
            self.levels.setdefault(device, 0.0)
        account.turn = tenant.quantum_ns
        account.level = max(account.level, self._level(account))

    def closed(self, tenant: int) -> None:
        account = self.accounts.pop(tenant, None)
        if account is not None:
            self.sides.closed(tenant, account)
        if not self.accounts:  # nobody is left for whom they count
            self.levels.clear()

    # -- what tenants have had ------------------------------------------------------------

    def charged(self, tenant: int, had: list[Had], now: int) -> None:
        account = self.accounts[tenant]
        held = account.charge(had, now, self.sides.is_on)
        if held and account.of_rest and account.start is not None:
            self._raise_levels(account.gang, account.start)
        account.bound(self._level(account))

    def _raise_levels(self, devices: Iterable[str], level: float) -> None:
        levels = self.levels
        for device in devices:
            if level > levels.get(device, 0.0):
                levels[device] = level

    def _level(self, account: Account) -> float:
        """The level that it has at least."""
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
        # While nobody holds its devices it is owed no more than before, so without a least pause
        # it would be asked again at once, and again.
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
            if other is None:  # it has another policy, and they stand in the order they came
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
        """For how long the holder is still the one that should run, and not the waiter."""
        mine, other = holder.due_in, waiter.due(now) - now
        until_level = waiter.level - holder.level
        if mine is None or mine >= 0:
            return 0 if other <= 0 else round(max(0, min(until_level, other)))
        # While it runs, the time at which it should be served moves away by 1 / request - 1.
        # first: until the waiter should have been served before it.
        first = max(0.0, (other - mine) * holder.request)
        if other <= 0:
            return round(first)
        part = 1 - holder.request
        owed_for = -mine * holder.request / part if part > 0 else PATIENCE_NS
        return round(min(max(owed_for, until_level), max(other, first)))

    def _least(self, turn: int, holder: Account, waiter: Account) -> int:
        """How long a turn is at least. One that is owed much, as others ran in its short pauses,
        does not wait for a whole turn of theirs."""
        behind = waiter.owed_now - max(0.0, holder.owed_now) - turn
        return turn if behind <= 0 else max(min(SHORT_NS, turn), turn - round(behind))

    def _within_limit(self, account: Account, now: int) -> int:
        """For how long a holder may go on."""
        left = (account.burst - account.over_by(now)) / (1 - account.limit)
        return max(LEAST_NS, round(left))

    def preempts(self, view: View, waiter: Spec, holder: Spec) -> bool:
        return False

    def patience(self, view: View, holder: Spec, waiter: Spec, handoff_ns: int) -> int:
        """As long as the handoff takes, which is never more than twice the best in hindsight."""
        return handoff_ns

    def beside(self, view: View, tenant: Spec) -> bool:
        """Those that have a share may where all get theirs so."""
        has_share = tenant.request > 0 or tenant.limit < 1
        return not has_share or all(self.sides.is_on(device) for device in tenant.gang)

    def measures(self, device: str) -> bool:
        return self.sides.measures(device)

    def measured(self, work: Measured, now: int) -> bool:
        level = self.sides.take(work)
        if level is not None:
            self._raise_levels([work.device], level)
        for account in self.sides.there[work.device].values():
            account.bound(self._level(account))
        return self.sides.look(work, now)

    def why_beside(self, device: str, now: int) -> str:
        return self.sides.why(device)

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
