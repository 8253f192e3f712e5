"""Equal time for equal demands, by a deficit.

A tenant's deficit is the lease time that it would have had if its devices had been divided evenly
among all tenants that held or waited for them, less the time that it has had. The whole restore and
the whole drain count as time that it has had. So it does not matter how long a tenant's quantum is,
how often it pauses, how slowly it drains or how much memory it moves: a tenant that has had too
little is served sooner, and runs until it has caught up. A tenant that yields before the end of its
quantum has the rest of it added to its deficit.

A waiter's place is the time at which it began to wait. It is earlier by the deficit times the
number of its competitors, and later by PRICE times the time that its memory takes to come in and
that the displaced memory takes to come back. So tenants whose memory is on the device take turns,
and now and then one of them is exchanged for another tenant.

Deficits survive a restart of the daemon. If a device gets another policy its tenants lose their
deficits, and begin without them if the device gets this policy again.

The bound: a deficit and a price are at most MOST_NS. So a waiter with k competitors is served
before every tenant that begins to wait (2 k + 3) MOST_NS later. Each of those that began before
that has one turn, so the waiter's own turn comes after that time and k + 1 times a quantum, a
restore and four drains.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

from leased.core.policy import Had, Policy, Spec, View
from leased.policy import saved
from leased.policy.deficits import MOST_NS, Deficits
from leased.policy.registry import register

PRICE = 20  # a quantum is at least this many times as long as its handoff
REVOKED_NS = 20_000_000  # a tenant that asks again within this time was revoked, not idle
FORGET_NS = 60_000_000_000  # after this time without its devices a tenant counts as a new one

NONE = Deficits()


@register
class Fair(Policy):
    """What it remembers of tenants, in ns. deficits: by tenant. handoffs: how long
    bringing in each tenant's memory took when it last got its place, before any of it was there.
    seen: when each was last charged. released: when each last held something, until it waits
    again. patiences: how long each last had to be idle before it yielded. pauses: how long each
    was idle when it last yielded."""

    name: ClassVar[str] = "fair"
    charges: ClassVar[bool] = True

    def __init__(self) -> None:
        self.deficits: dict[int, Deficits] = {}
        self.handoffs: dict[int, int] = {}
        self.seen: dict[int, int] = {}
        self.released: dict[int, int] = {}
        self.patiences: dict[int, int] = {}
        self.pauses: dict[int, int] = {}

    def opened(self, tenant: Spec) -> None:
        self.deficits.setdefault(tenant.id, Deficits())

    def closed(self, tenant: int) -> None:
        kept = (self.deficits, self.handoffs, self.seen, self.released, self.patiences, self.pauses)
        for known in kept:
            known.pop(tenant, None)

    def charged(self, tenant: int, had: Had, now: int) -> None:
        self.deficits[tenant].charge(had)
        self.seen[tenant] = now
        if any(had.held_ns):
            self.released[tenant] = now

    def order(self, view: View, tenant: Spec) -> int:
        away = view.now - self.seen.get(tenant.id, view.now)
        if away > FORGET_NS:
            self.deficits[tenant.id].set({})
        idle = view.now - self.released.pop(tenant.id, view.now)
        if idle > REVOKED_NS and tenant.id in self.patiences:
            self.pauses[tenant.id] = self.patiences[tenant.id] + idle
        handoff = self.handoffs[tenant.id] = view.handoff_ns(tenant)
        price = min(PRICE * 2 * handoff, MOST_NS)
        return view.now - view.competitors(tenant) * self._deficit(tenant) + price

    def quantum(self, view: View, holder: Spec, waiter: Spec | None, asked_ns: int) -> int:
        """As asked, but at least until its own handoff was worth it and it has caught up with the
        waiter."""
        least = max(asked_ns, min(PRICE * self.handoffs.get(holder.id, 0), MOST_NS))
        if waiter is None:
            return least
        behind = self._deficit(holder) - self._deficit(waiter)
        return max(least, behind + view.held_ns(holder))

    def preempts(self, view: View, waiter: Spec, holder: Spec) -> bool:
        """Whether the holder is more than a quantum ahead of the waiter."""
        ahead = self._deficit(waiter) - self._deficit(holder)
        return ahead > holder.quantum_ns + PRICE * self.handoffs.get(waiter.id, 0)

    def patience(self, view: View, holder: Spec, waiter: Spec, handoff_ns: int) -> int:
        """How long the holder may be idle: as long as the handoff takes, counting what has been
        brought in for it already. Twice as long for a holder that came back within that time when
        it last yielded: that handoff was wasted, and what it displaced had to come back too."""
        patience = max(handoff_ns, self.handoffs.get(waiter.id, 0))
        if holder.id in self.pauses and self.pauses[holder.id] <= 2 * patience:
            patience *= 2
        self.patiences[holder.id] = patience
        return patience

    def dump(self, tenants: Collection[int] | None = None) -> bytes:
        chosen = self.deficits if tenants is None else tenants
        of = {tenant: self.deficits.get(tenant, NONE) for tenant in chosen}
        return saved.write({tenant: known.by_device() for tenant, known in of.items()})

    def load(self, data: bytes) -> bool:
        return saved.read(data, self._load)

    def _load(self, tenant: int, deficits: dict[str, Any]) -> bool:
        """Take over the deficits of one tenant. Returns whether all of them were understood."""
        good = {device: ns for device, ns in deficits.items() if type(ns) is int}
        if tenant in self.deficits:
            self.deficits[tenant].set(good)
        return len(good) == len(deficits)

    def _deficit(self, tenant: Spec) -> int:
        return self.deficits.get(tenant.id, NONE).least_of(tenant.gang)
