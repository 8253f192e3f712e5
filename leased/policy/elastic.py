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

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

from leased.core.policy import Had, Spec, View
from leased.policy import saved
from leased.policy.registry import register

PATIENCE_NS = 60_000_000_000
PRICE = 20  # as a quantum is at least so many times its handoff
SURPLUS = 3  # so many turns that a tenant has had too much are remembered,
ARREARS = 10  # and so many that it is owed
SHORT_NS = 20_000_000  # no turn of a holder that runs on though another is owed more is shorter
FIRST_NS = 100_000_000  # a turn, until more is known
SAVINGS_NS = 100_000_000  # a hundredth of ten seconds
LEAST_NS = 1_000_000  # it is not worth less to come back, or to stay
AFTER_ALL = 1 << 90  # between the places of those who are owed something and of the others
SAVED = ("owed", "over", "level")


@dataclass
class Account:
    """One tenant. owed, over, level: see above. at: when it was last charged, which is the time
    that `over` is as of. turn: how long a turn of it is. began: since when it has waited. start:
    its level when its turn began, or when others last began to want the device; None: it has had
    nothing of a turn yet. of_rest: its turn is of what was left, as it was owed nothing. barred: it
    waits at its limit."""

    request: float
    limit: float
    gang: tuple[str, ...]
    turn: int = FIRST_NS
    owed: float = 0.0
    over: float = 0.0
    level: float = 0.0
    began: int | None = None
    start: float | None = None
    of_rest: bool = False
    barred: bool = False
    at: int | None = None


@register
class Elastic:
    """levels: by device, the level of those who were served last with what was left."""

    name: ClassVar[str] = "elastic"
    shares: ClassVar[bool] = True

    def __init__(self) -> None:
        self.accounts: dict[int, Account] = {}
        self.levels: dict[str, float] = {}

    def admit(self, view: View, tenant: Spec) -> str | None:
        return None

    def opened(self, tenant: Spec) -> None:
        account = self.accounts.get(tenant.id)
        if account is None:
            account = self.accounts[tenant.id] = Account(tenant.request, tenant.limit, tenant.gang)
        account.gang = tenant.gang
        account.turn = tenant.quantum_ns
        account.level = max(account.level, self._level(account))

    def closed(self, tenant: int) -> None:
        self.accounts.pop(tenant, None)
        if not self.accounts:  # nobody is left for whom they count
            self.levels.clear()

    # -- what tenants have had ------------------------------------------------------------

    def charged(self, tenant: int, had: list[Had], now: int) -> None:
        account = self.accounts[tenant]
        held = passed = even = 0
        for _, held_ns, even_ns, leased_ns in had:
            held += held_ns
            even += even_ns
            passed += leased_ns
        part = 1 / len(had)
        time = 0 if account.at is None else now - account.at
        account.at = now
        if account.barred:  # also while its devices idle, as all who want them are
            passed = time * len(had)
        account.owed += part * (account.request * passed - held)
        account.over += part * held - account.limit * time
        if held:
            account.began = None
            before = account.level
            account.level += part * held
            if even >= held:  # nobody else wanted it
                account.start, account.of_rest = account.level, True
            elif account.start is None:
                account.start = before
            if account.of_rest:
                self._raise_levels(account, account.start)
        self._bound(account)

    def _raise_levels(self, account: Account, level: float) -> None:
        levels = self.levels
        for device in account.gang:
            if level > levels.get(device, 0.0):
                levels[device] = level

    def _over(self, account: Account, now: int) -> float:
        """What it has had beyond its limit by then."""
        passed = 0 if account.at is None else now - account.at
        return max(account.over - account.limit * passed, -self._savings(account))

    def _bound(self, account: Account) -> None:
        """What is too long ago is forgotten."""
        surplus = SURPLUS * account.turn
        account.owed = max(-surplus, min(account.owed, ARREARS * account.turn))
        level = self._level(account)
        account.over = max(account.over, -self._savings(account))
        account.level = max(level, min(account.level, level + surplus))

    def _burst(self, account: Account) -> float:
        """By how much its limit may be exceeded for a turn."""
        return account.turn * (1 - account.limit)

    def _savings(self, account: Account) -> float:
        """How much of its limit it may not have had and have later: as much, and at least what
        others take in a turn, since it would lose that whenever it waits for one of theirs."""
        return max(self._burst(account), SAVINGS_NS)

    def _level(self, account: Account) -> float:
        levels = self.levels
        return min([levels.get(device, 0.0) for device in account.gang], default=0.0)

    def _come_back(self, account: Account, now: int) -> None:
        """It has been away, and was not charged for that time. What it was owed before, it did not
        want; only what a former daemon has said of it counts."""
        if account.at is not None:
            account.owed = min(account.owed, 0.0)
        account.over = self._over(account, now)
        account.at = now
        account.began = now

    # -- who is next ------------------------------------------------------------------------

    def order(self, view: View, tenant: Spec) -> int:
        account = self.accounts[tenant.id]
        account.turn = max(tenant.quantum_ns, PRICE * view.handoff_ns(tenant))
        if account.at != view.now:
            self._come_back(account, view.now)
        elif account.began is None:
            account.began = view.now
        account.start = None
        self._bound(account)
        due = self._due(account, view.now)
        account.of_rest = due > view.now
        return AFTER_ALL + round(account.level) if account.of_rest else due

    def _due(self, account: Account, now: int) -> int:
        """Since when it should have been served, or when it should be."""
        began = now if account.began is None else account.began
        due = began + PATIENCE_NS
        if account.request > 0:
            due = min(due, now - round(account.owed / account.request))
        return due

    def wake_at(self, view: View, waiter: Spec) -> int | None:
        # While nobody holds its devices it is owed no more than before, so without a least pause
        # it would be asked again at once, and again.
        due = self._due(self.accounts[waiter.id], view.now)
        return max(due, view.now + LEAST_NS) if due > view.now else None

    def barred_until(self, view: View, waiter: Spec) -> int | None:
        account = self.accounts[waiter.id]
        over = self._over(account, view.now)
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
        mine, other = self._due_in(holder), self._due(waiter, now) - now
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
        behind = waiter.owed - max(0.0, holder.owed) - turn
        return turn if behind <= 0 else max(min(SHORT_NS, turn), turn - round(behind))

    def _due_in(self, account: Account) -> float | None:
        """Below 0: how long ago a holder should have been served; None: it requests nothing."""
        return -account.owed / account.request if account.request > 0 else None

    def _within_limit(self, account: Account, now: int) -> int:
        """For how long a holder may go on."""
        left = (self._burst(account) - self._over(account, now)) / (1 - account.limit)
        return max(LEAST_NS, round(left))

    def preempts(self, view: View, waiter: Spec, holder: Spec) -> bool:
        return False

    def patience(self, view: View, holder: Spec, waiter: Spec, handoff_ns: int) -> int:
        """As long as the handoff takes, which is never more than twice the best in hindsight."""
        return handoff_ns

    def beside(self, view: View, tenant: Spec) -> bool:
        """What tenants have is measured by their leases, so those that have a share take turns."""
        return tenant.request == 0 and tenant.limit >= 1

    # -- for the next daemon --------------------------------------------------------------------

    def dump(self, tenants: Collection[int] | None = None) -> bytes:
        chosen = self.accounts if tenants is None else [n for n in tenants if n in self.accounts]
        return saved.write({tenant: self._saved(self.accounts[tenant]) for tenant in chosen})

    def _saved(self, account: Account) -> dict[str, int]:
        """Its numbers, by name; empty: it is as a new one."""
        values = account.owed, account.over, account.level - self._level(account)
        rounded = [round(value) for value in values]
        return dict(zip(SAVED, rounded, strict=True)) if any(rounded) else {}

    def load(self, data: bytes) -> bool:
        return saved.read(data, self._load)

    def _load(self, tenant: int, values: dict[str, Any]) -> bool:
        good = all(type(values.get(name)) is int for name in SAVED) and len(values) == len(SAVED)
        account = self.accounts.get(tenant)
        if good and account is not None:
            account.owed, account.over = values["owed"], values["over"]
            account.level = self._level(account) + values["level"]
        return good
