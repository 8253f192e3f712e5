"""Whether tenants with shares run side by side on a device, by what was measured there.

By turns every share is kept, and each handoff costs something. Side by side nothing is lost, but
the driver alone says who gets how much. So tenants with shares begin by turns. Meanwhile it is
learnt how much each would work if it never had to wait. Once that leaves the device room, or an
even division of the device among them, none above what it would work, gives all of them what they
request, they run side by side. They go back to turns, at once,
- when one that requests something has lost LOST_NS of it while the device was full. What one had
  less than it requested while the device idled it did not want. SLACK of its request is not
  counted, nor what it had beyond its request before;
- when one has had LOST_NS more than its limit allows. As a rule that does not happen, as the
  limit ends its lease also side by side;
- when it cannot be known who has had what: nothing is measured any more, or the driver does not
  say whose the work was, or there are more than MOST_TENANTS.
What one has lost it is owed, and it gets that by turns first. Turns last FIRST_NS at least, and
twice as long as the last time, up to MOST_NS, unless side by side was well for AGAIN times as long.
So a device does not go back and forth. Once a tenant has ended it is FIRST_NS again.
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
LOST_NS = 150_000_000  # of ten seconds 0.015
SLACK = 0.01
FULL = 0.95  # a device that works for less of the time has had room for more
SILENT = 0.05  # less work than that may be nobody's
KNOWN_NS = 500_000_000  # a tenant that has been free for less may want all of the device
FORGET_NS = 4_000_000_000  # what was before that hardly counts


class Claim(NamedTuple):
    """What a side has to know of a tenant. lost: what it has had less than it requested side by
    side; over: what it has had beyond what its limit allows; waited: how long it has waited since
    it opened. ns."""

    request: float
    limit: float
    lost: float
    over: float
    waited: int


@dataclass
class Wanted:
    """How much of the time in which it did not wait a tenant has worked. ns."""

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
        """Of the device's time, if it never had to wait."""
        return self.worked / self.free if self.free >= KNOWN_NS else 1.0


@dataclass
class Side:
    """One device. on: side by side. since: when that began, or when turns did. turns_ns: how long
    turns last at least. why: for people."""

    since: int
    on: bool = False
    turns_ns: int = FIRST_NS
    why: str = "what each would work is being measured"
    wanted: dict[int, Wanted] = field(default_factory=dict)

    def closed(self, tenant: int) -> None:
        self.wanted.pop(tenant, None)
        if not self.on:
            self.turns_ns = FIRST_NS

    def look(self, work: Measured, claims: Mapping[int, Claim], now: int) -> bool:
        """Something was measured, or nothing for too long. Is the device used otherwise now?"""
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
        self.on, self.since, self.why = True, now, "nobody has less than its share side by side"
        return True

    def _why_not(self, work: Measured, claims: Mapping[int, Claim]) -> str | None:
        """Why side by side cannot go on; None: it can."""
        if work.busy is None:
            return "nothing says any more how much the GPU works"
        if work.busy >= SILENT and not work.worked:
            return "nothing says whose the GPU's work is"
        if len(claims) > MOST_TENANTS:
            return f"more than {MOST_TENANTS} jobs are there"
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

    # -- whether it would be well ----------------------------------------------------------

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
    """How much of a whole each has at most when it is divided evenly, and none has more than it
    wants; 1 where there is enough for all."""
    left, todo = 1.0, sorted(wanted)
    for n, want in enumerate(todo):
        each = left / (len(todo) - n)
        if want >= each:
            return each
        left -= want
    return 1.0
