"""Looks at the limits of jobs with a share: none has more than its limit of its GPUs' time.

Between any two moments a job may have had its limit of the time that passed, and beyond that: what
it has saved up, a turn at most; as much again, since a turn ends when it has had that too much; and
what it keeps its GPUs for longer than it may, while it restores or drains, which it pays back
before its next turn. So had - limit * time never rises by more than that above where it was lowest.
A parked job that was told to go may take its time while nobody waits for what it has: no time of
that counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from leased.core.arbiter import Arbiter
from leased.core.state import FREE, Tenant


@dataclass
class Watch:
    """One job: where had - limit * time was lowest, and the longest turn since then."""

    lowest: float
    turn: int


class Limits:
    """late: for how long a job may keep its GPUs beyond its turn. broken: tell of a fault."""

    def __init__(self, late: int, broken: Callable[[str], object]):
        self.late = late
        self.broken = broken
        self.watched: dict[int, Watch] = {}

    def forget(self) -> None:
        self.watched.clear()

    def look(self, a: Arbiter, now: int) -> None:
        limited = [t for t in a.tenants.values() if t.limit < 1 and self._holds(a, t)]
        self.watched = {t.id: self._watch(a, t, now) for t in limited}

    def _holds(self, a: Arbiter, tenant: Tenant) -> bool:
        """The limit that it has is kept by its leases now: the site has not turned shares off on
        one of its devices, and time slices of the GPU do not keep them."""
        heeds = tenant.heeds != FREE
        holds = heeds and not a.rules.grace_until and not tenant.sliced
        return holds and not self._may_take_its_time(a, tenant)

    def _may_take_its_time(self, a: Arbiter, tenant: Tenant) -> bool:
        told = tenant.parked and tenant.lease is not None and tenant.lease.revoked
        others = (t for t in a.tenants.values() if set(t.gang) & set(tenant.gang))
        return bool(told) and not any(t.waiting for t in others)

    def _watch(self, a: Arbiter, tenant: Tenant, now: int) -> Watch:
        had = max(used.lease_ns for used in a.usage(tenant.id, now).values())
        beyond = had - tenant.limit * now
        asked = a.rules.asked_ns(tenant)
        turn = max(asked, a.rules.quantum(tenant, a.rules.handoff_ns(tenant)), tenant.quantum_ns)
        watch = self.watched.get(tenant.id)
        if watch is None:
            return Watch(beyond, turn)
        watch.turn = max(watch.turn, turn)
        most = 2 * watch.turn + self.late
        if beyond - watch.lowest > most:
            self.broken(
                f"{tenant.id} has had {(beyond - watch.lowest) / 1e9:.1f} s more than its limit of "
                f"{tenant.limit:g}, where {most / 1e9:.1f} s is the bound"
            )
        watch.lowest = min(watch.lowest, beyond)
        return watch
