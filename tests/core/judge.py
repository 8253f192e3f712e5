"""What must hold whatever happens, looked at after every event of the adversary's."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from leased.core import classes
from leased.core.actions import Action, Grant, Overrun, Revoke
from leased.core.arbiter import DRAIN_NS, Arbiter
from leased.core.chains import are_together, fit
from leased.core.events import Adopted, Event, PolicySet, Signalled
from leased.core.rules import SHORT_NS
from leased.core.stages import RESTORE_NS
from leased.core.state import Tenant
from leased.policy import deficits, elastic_account
from leased.sim.lease import CLOSING
from tests.core.client import Client
from tests.core.items import items
from tests.core.line import queue, worth
from tests.core.share_judge import Limits

if TYPE_CHECKING:
    from tests.core.world import World

COUNT_EVERY = 512  # events
ITEMS_EACH = 120  # for a tenant on a device, and for a device
DRAINS = 4  # of those in the way and of who ran beside them, each until it is passed over
ENDS_NS = RESTORE_NS + DRAINS * DRAIN_NS  # of a turn, besides its quantum
SHORT_TURN_NS = SHORT_NS + ENDS_NS + RESTORE_NS  # until who was interrupted for it goes on


class Broken(AssertionError):
    """A rule does not hold."""


@dataclass
class Wait:
    """A waiter that could run, since when and behind how many; what of it the bound depends on."""

    arrival: int
    since: int
    before: int
    quantum: int = 0
    others: int = 0  # the most tenants there were beside it
    gang: int = 1
    asked: int = 0  # the longest quantum that it, or the site for it, wanted meanwhile
    behind_online: bool = False  # at any time


def fcfs_bound(wait: Wait, turn: int) -> int:
    """docs/daemon.md: with k before it, k + 1 times a quantum, a restore and four drains."""
    return (wait.before + 1) * turn


def fair_bound(wait: Wait, turn: int) -> int:
    """See leased/policy/fair.py."""
    return (2 * wait.others + 3) * deficits.MOST_NS + (wait.others + 1) * turn


def elastic_bound(wait: Wait, turn: int) -> int:
    """See leased/policy/elastic.py."""
    return (wait.others + 1) * (elastic_account.PATIENCE_NS + turn)


Bound = Callable[[Wait, int], int]
BOUNDS: dict[str, Bound] = {
    "fcfs": fcfs_bound,
    "fair": fair_bound,
    "elastic": elastic_bound,
}


def told_to_go(tenant: Tenant) -> bool:
    return tenant.lease is not None and tenant.lease.revoked


class Judge:
    """Exclusive, never half a gang, work conserved, bounded wait, epochs grow, state bounded."""

    def __init__(self, world: World):
        self.world = world
        self.epoch = 0
        self.waits: dict[int, Wait] = {}
        self.signals = False  # a process has handled one
        self.longest = 0  # quantum of any holder now
        self.worst = 0.0  # wait over its bound
        self.idle_since: dict[int, int | None] = dict.fromkeys(world.room, None)
        self.empty = items(world.a)
        self.looks = 0
        self.limits = Limits(RESTORE_NS + DRAINS * DRAIN_NS, self.broken)

    @property
    def a(self) -> Arbiter:
        return self.world.a

    def broken(self, what: str) -> NoReturn:
        raise Broken(f"at {self.world.now / 1e9:.3f} s: {what}")

    def restarted(self) -> None:
        self.waits.clear()
        self.limits.forget()
        self.empty = items(self.a)

    # -- what it hears ----------------------------------------------------------------

    def saw(self, event: Event, actions: Iterable[Action]) -> None:
        if isinstance(event, PolicySet):  # the bound is another one from then on
            self.waits.clear()
        self.signals |= isinstance(event, Signalled)
        for action in actions:
            if isinstance(action, Grant):
                if action.epoch <= self.epoch:
                    self.broken(f"epoch {action.epoch} comes after {self.epoch}")
                self.epoch = action.epoch
                self.granted(action.tenant)
                entry = self.world.entries.get(action.tenant)
                if entry and entry.held and action.tenant not in self.world.liars:
                    self.broken(f"{action.tenant} is granted what it has")

    def computes(self, d: int) -> None:
        """Somebody can on this device, if only until the next event."""
        self.idle_since[d] = None

    def granted(self, tenant: int) -> None:
        wait = self.waits.pop(tenant, None)
        if wait is not None:
            self.check_wait(tenant, wait, self.bounds())

    # -- what it looks at ---------------------------------------------------------------

    def look(self) -> None:
        """After all that follows from an event."""
        self.looks += 1
        holders = [t for t in self.a.tenants.values() if t.lease]
        self.exclusive(holders)
        quanta = [self.a.rules.quantum(t, t.lease.cost_ns) for t in holders if t.lease]
        self.longest = max(quanta, default=0)
        if not self.a.rules.grace_until:
            self.waiters()
            self.limits.look(self.a, self.world.now)
            self.idle_devices()
        if self.looks % COUNT_EVERY == 0:
            self.state_is_small()

    def exclusive(self, holders: list[Tenant]) -> None:
        for tenant in holders:
            held = [uuid for uuid in tenant.gang if tenant.id in self.a.devices[uuid].holders]
            if len(held) != len(tenant.gang):
                self.broken(f"{tenant.id} has {held} of {tenant.gang}")
        for uuid, device in self.a.devices.items():
            if len(device.holders) < 2:
                continue
            settled = [t for t in device.holders.values() if t.lease and not t.lease.revoked]
            locked = [t for t in settled if self.a.rules.lock_of(t) != "off"]
            alone = [t.id for t in locked if not self.a.rules.can_share(t)]
            if not alone or len(locked) < 2:
                continue
            there = [t.id for t in locked]
            if not all(are_together(locked[0], t) for t in locked):
                self.broken(f"{alone} and {there} hold {uuid}")
            if not device.fits and not fit(device, locked):
                self.broken(f"{there} are one chain, hold {uuid}, and do not fit")

    def waiters(self) -> None:
        """Each that could run has its turn in time, and at once where nobody is in its way."""
        a = self.a
        waiting = [a.tenants[n] for n in queue(a)]
        runnable = [t for t in waiting if not a.rules.withheld(t)]
        online = [t for t in a.tenants.values() if t.online and (t.lease or t.waiting)]
        bounded = {
            t.id: t.arrival for t in runnable if not t.offline or not self.behind_online(t, online)
        }
        for n in [n for n, wait in self.waits.items() if bounded.get(n) != wait.arrival]:
            del self.waits[n]
        bounds = self.bounds()
        for place, tenant in enumerate(runnable):
            if tenant.online and (tenant.urgent or self.world.entries[tenant.id].client.opened):
                self.check_online(tenant, runnable[:place])
            if tenant.id in bounded:
                self.check_wait(tenant.id, self.wait_of(tenant, place, runnable, online), bounds)
            if next(a.rules.in_the_way(tenant), None) is None:
                self.check_idle(tenant, runnable[:place])

    def wait_of(
        self, tenant: Tenant, place: int, runnable: list[Tenant], online: list[Tenant]
    ) -> Wait:
        """Those behind an online one that came before it count as before it, since they become
        overdue."""
        rules = self.a.rules
        wait = self.waits.get(tenant.id)
        if wait is None:
            before = place
            if tenant.urgent:
                behind = (t for t in runnable[place + 1 :] if not t.urgent and not t.offline)
                before += sum(t.arrival < tenant.arrival for t in behind)
            wait = Wait(tenant.arrival, self.world.now, before, gang=len(tenant.gang))
            self.waits[tenant.id] = wait
        quantum = rules.quantum(tenant, rules.handoff_ns(tenant))
        wait.quantum = max(wait.quantum, self.longest, quantum)
        wait.asked = max(wait.asked, rules.asked_ns(tenant))
        wait.others = max(wait.others, len(self.a.tenants) - 1)
        wait.behind_online = wait.behind_online or (
            not tenant.urgent and self.behind_online(tenant, online)
        )
        return wait

    def check_online(self, tenant: Tenant, before: list[Tenant]) -> None:
        """Who is not online is no reason to wait in the line, and who is offline makes way."""
        ahead = [
            t.id for t in before if not classes.goes_first(t) and set(t.gang) & set(tenant.gang)
        ]
        if ahead:
            self.broken(f"{ahead} stand before {tenant.id}, which is online")
        stays = [t.id for t in self.a.rules.in_the_way(tenant) if t.offline and not told_to_go(t)]
        if stays:
            self.broken(f"{stays} are offline and in the way of {tenant.id}, which is online")

    def behind_online(self, tenant: Tenant, online: list[Tenant]) -> bool:
        """Whether another one of the online ones that have or want devices has or wants one that it
        needs, or that gangs connect with one. Offline ones wait for as long as that uses it,
        without a bound."""
        others = [t for t in online if t is not tenant]
        if not others:
            return False
        tenants = self.a.tenants.values()
        found, more = set[str](), set(tenant.gang)
        while more - found:
            found |= more
            more = {uuid for t in tenants if found & set(t.gang) for uuid in t.gang}
        return any(found & set(t.gang) for t in others)

    def bounds(self) -> list[Bound]:
        """Each policy states its bound; where one has none, nobody is judged by any."""
        names = set(self.a.rules.policies.of_device.values())
        return [BOUNDS[name] for name in names] if names <= BOUNDS.keys() else []

    def check_wait(self, tenant: int, wait: Wait, bounds: list[Bound]) -> None:
        """Where devices have several policies, the bound is the longest of theirs. Online ones go
        before others until these are overdue. Short turns have at most half of the time, and one
        may be under way on each device."""
        if not bounds:
            return
        turn = wait.quantum + ENDS_NS
        waited = self.world.now - wait.since
        bound = max(bound(wait, turn) for bound in bounds)
        if wait.behind_online:
            bound += classes.PATIENCE * wait.asked
        if self.signals:
            bound = 2 * bound + wait.gang * SHORT_TURN_NS
        self.worst = max(self.worst, waited / bound)
        if waited > bound:
            self.broken(
                f"{tenant} has waited {waited / 1e9:.1f} s behind {wait.before}, "
                f"where {bound / 1e9:.1f} s is the bound"
            )

    def check_idle(self, tenant: Tenant, before: list[Tenant]) -> None:
        """Nobody holds what it needs: only those before it, who will have it soon, may be why."""
        mine = set(tenant.gang)
        rivals = [
            t for t in before if mine & set(t.gang) and not self.a.rules.compatible(tenant, t)
        ]
        if not rivals:
            self.broken(f"{tenant.id} could run, and nobody is before it")
        if tenant.offline and any(map(classes.goes_first, rivals)):
            return  # it would make way at once
        until = self.world.now + worth(self.a, tenant)
        if all(self.runs_for_long(rival, until) for rival in rivals):
            self.broken(f"{tenant.id} could run until {[t.id for t in rivals]} can")

    def runs_for_long(self, rival: Tenant, until: int) -> bool:
        """Somebody in its way holds on for so long."""
        return any(
            other.lease and not other.lease.revoked and (other.lease.due or 0) >= until
            for other in self.a.rules.in_the_way(rival)
        )

    def idle_devices(self) -> None:
        """A device where nobody computes does not stay so beside somebody who could."""
        frozen = sum(e.client.frozen or e.client.hangs for e in self.world.entries.values())
        limit = (2 + frozen) * (self.longest + ENDS_NS)
        for d, since in self.idle_since.items():
            if self.world.open_gates[d] or not self.wanted(d):
                self.idle_since[d] = None
            elif since is None:
                self.idle_since[d] = self.world.now
            elif self.world.now - since > limit:
                self.broken(f"nobody has computed on d{d} for {(self.world.now - since) / 1e9} s")

    def wanted(self, d: int) -> bool:
        """A job of this device alone wants it, and what cannot move leaves room for it."""
        entries = self.world.entries.values()
        if self.a.devices[f"d{d}"].drained:
            return False
        needs = [
            e.client.size[d] if e.client.job.swaps else 0
            for e in entries
            if e.client.gang == (d,) and e.heard and self.asks(e.client)
        ]
        if not needs:
            return False
        stays = sum(self.stays(e.client, d) for e in entries if d in e.client.resident)
        return min(needs) + stays <= self.world.room[d]

    def asks(self, client: Client) -> bool:
        """It asks, and nothing but room or others can keep it from its devices."""
        able = client.wants and client.gate != CLOSING and not client.frozen
        tenant = self.a.tenants[client.tenant]
        return (
            able
            and not client.suspended
            and client.tenant not in self.world.liars
            and not tenant.barred
            and client.tenant not in self.a.rules.shares.waiting
            and not (tenant.offline and any(map(self.is_not_for_offline, tenant.gang)))
        )

    def is_not_for_offline(self, uuid: str) -> bool:
        """An online or overdue one waits for the device, which is kept for it while others have
        what else it needs: its own bound says how long. Or an online one that has the device stands
        still, maybe since before it could take it, and nobody can know it."""
        device = self.a.devices[uuid]
        if any(classes.goes_first(waiter) for _, waiter in device.line):
            return True
        for tenant in device.holders.values():
            client = self.world.entries[tenant.id].client
            if tenant.online and client.gate != CLOSING and client.frozen and not tenant.frozen:
                return True
        return False

    def stays(self, client: Client, d: int) -> int:
        """What of its memory does not move. Of one that lies also what it says to be there, since
        nobody can know better and it could have so much there; and what is there and it does not
        say, since nobody tells that to leave."""
        stays = client.fixed[d] + (client.resident[d] if client.frozen or client.hangs else 0)
        if client.tenant not in self.world.liars:
            return stays
        said = self.a.devices[f"d{d}"].residency.shares.get(client.tenant)
        if said is None:
            return max(stays, client.resident[d])
        return max(stays, said.stays, client.resident[d] - said.resident)

    def state_is_small(self) -> None:
        found = items(self.a) - self.empty
        gangs = sum(len(t.usage) for t in self.a.tenants.values())
        most = ITEMS_EACH * (gangs + len(self.a.devices) + 1)
        if found > most:
            self.broken(f"{found} items for {len(self.a.tenants)} tenants")

    def nothing_left(self) -> None:
        left = items(self.a)
        if left > self.empty + ITEMS_EACH:
            self.broken(f"{left} items are left, there were {self.empty}")


__all__ = ["Adopted", "Broken", "Judge", "Overrun", "Revoke"]
