"""Whether tenants with shares run side by side on a device, by what was measured there.

By turns every share is kept, but each handoff costs something. Side by side no time is lost, but
the driver alone decides how much each tenant gets. So tenants with shares begin by turns, and
meanwhile it is measured how much each would use the device if it never had to wait. They run side
by side once these parts together leave the device idle for some of the time, or once each of them
would get its request if the device were divided evenly (nobody getting more than it would use).
They go back to turns at once
- when a tenant has lost LOST_NS of its request while the device was fully used. What it had less
  than its request while the device was idle it did not want. The first SLACK of its request is not
  counted as lost, and time that it had beyond its request before is subtracted;
- when a tenant has had LOST_NS more than its limit allows. This is rare, since the limit ends its
  lease also side by side;
- when it cannot be known how much each has had: nothing is measured any more, or the driver does
  not say which tenant the work was for, or there are more than MOST_TENANTS.
A tenant is owed what it has lost, and gets that first by turns. A device stays with turns for at
least FIRST_NS, and for twice as long each time, up to MOST_NS, unless it has run side by side for
AGAIN times as long as the last turns. So it does not go back and forth. After a tenant has ended
this begins with FIRST_NS again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leased.core.policy import Measured

FIRST_NS = 2_000_000_000
MOST_NS = 64_000_000_000
AGAIN = 16
MOST_TENANTS = 16
LOST_NS = 150_000_000  # 0.015 of ten seconds
SLACK = 0.01
FULL = 0.95  # a device that is busy for a smaller part of the time could have done more
SILENT = 0.05  # a smaller part of busy time need not be the work of any tenant
KNOWN_NS = 500_000_000  # a tenant that did not have to wait for less may want the whole device
FORGET_NS = 4_000_000_000  # measurements that are older hardly count


class Claim(NamedTuple):
    """What a Side has to know of a tenant, in ns. lost: by how much it has had less than its
    request since it runs side by side. over: by how much it has had more than its limit allows.
    waited: how long it has waited since it opened."""

    request: float
    limit: float
    lost: float
    over: float
    waited: int


@dataclass
class Wanted:
    """For how long a tenant did not have to wait (free), and worked in that time. ns."""

    waited: int
    worked: float = 0.0
    free: float = 0.0

    def learn(self, ns: int, worked: int, waited: int) -> None:
        keep = max(0.0, 1 - ns / FORGET_NS)
        free = max(0, ns - (waited - self.waited))
        self.worked = self.worked * keep + min(worked, free)
        self.free = self.free * keep + free
        self.waited = waited

    @property
    def part(self) -> float:
        """The part of the device's time that it would use if it never had to wait."""
        return self.worked / self.free if self.free >= KNOWN_NS else 1.0


@dataclass
class Side:
    """One device. on: whether tenants run side by side. since: when that, or when turns, began.
    turns_ns: for how long the device stays with turns at least. why: the reason, for people."""

    since: int
    on: bool = False
    turns_ns: int = FIRST_NS
    why: str = "how much each job would use the GPU if it never waited is being measured"
    wanted: dict[int, Wanted] = field(default_factory=dict)

    def closed(self, tenant: int) -> None:
        self.wanted.pop(tenant, None)
        if not self.on:
            self.turns_ns = FIRST_NS

    def look(self, work: Measured, claims: Mapping[int, Claim], now: int) -> bool:
        """Something was measured, or nothing for too long. Returns whether the device changes
        between side by side and turns."""
        if self.on:
            why = self._why_not(work, claims)
            if why is None:
                return False
            self._leave(why, now)
            return True
        if work.worked or (work.busy is not None and work.busy < SILENT):
            self._learn(work, claims)
        if not work.worked or now - self.since < self.turns_ns or not self._would_hold(claims):
            return False
        self.on, self.since, self.why = True, now, "every job has its share side by side"
        return True

    def _why_not(self, work: Measured, claims: Mapping[int, Claim]) -> str | None:
        """Why side by side cannot go on; None: it can."""
        if work.busy is None:
            return "NVML no longer says how busy the GPU is"
        if work.busy >= SILENT and not work.worked:
            return "NVML does not say which jobs the GPU works for"
        if len(claims) > MOST_TENANTS:
            return f"more than {MOST_TENANTS} jobs share it"
        for tenant, claim in claims.items():
            if claim.request and claim.lost > LOST_NS:
                return f"job {tenant} had less than its request side by side"
            if claim.limit < 1 and claim.over > LOST_NS:
                return f"job {tenant} had more than its limit side by side"
        return None

    def _leave(self, why: str, now: int) -> None:
        short = now - self.since < AGAIN * self.turns_ns
        self.turns_ns = min(2 * self.turns_ns, MOST_NS) if short else FIRST_NS
        self.on, self.since, self.why = False, now, why
        self.wanted.clear()

    # -- whether side by side would keep the shares ----------------------------------------

    def _learn(self, work: Measured, claims: Mapping[int, Claim]) -> None:
        for tenant, claim in claims.items():
            wanted = self.wanted.get(tenant)
            if wanted is None:
                self.wanted[tenant] = Wanted(claim.waited)
            else:
                wanted.learn(work.ns, work.worked.get(tenant, 0), claim.waited)

    def _would_hold(self, claims: Mapping[int, Claim]) -> bool:
        if not 0 < len(claims) <= MOST_TENANTS:
            return False
        parts = {n: min(self.wanted[n].part, claim.limit) for n, claim in claims.items()}
        if sum(parts.values()) < FULL:
            return True
        level = even_level(list(parts.values()))
        for tenant, claim in claims.items():
            if min(level, parts[tenant]) < claim.request - SLACK:
                self.why = f"job {tenant} would have less than its request side by side"
                return False
        return True


def even_level(wanted: list[float]) -> float:
    """The most that anybody gets of a whole that is divided evenly, while nobody gets more than it
    wants; 1: there is enough for all."""
    left, todo = 1.0, sorted(wanted)
    for n, want in enumerate(todo):
        each = left / (len(todo) - n)
        if want >= each:
            return each
        left -= want
    return 1.0
