"""A waiter that has handled a signal gets a short turn soon.

A program can act on a signal only when its call returns, so whoever waits for its turn would hear
of its time limit, or of its preemption, when that is over. So such a waiter hurries: it is first in
the line, and holders in its way are revoked at once. Its turn lasts SHORT_NS at most, whatever its
quantum is, since that says nothing of how long a checkpoint takes. Then those who were interrupted
come first, and go on with what was left of their quanta, and whoever had the short turn has the
place in the line that it had before.

What the program does then may take longer (it copies its memory and writes it to a disk by turns).
So the holder of a short turn may be idle for PATIENCE_NS, and if it asks again within SIGNAL_NS of
the signal it has another one, TURNS in all.

Nobody makes a habit of it: a tenant has a short turn every AGAIN_NS at most, and what it had there
is taken off its next quanta, unless its policy charges it anyway. On devices that gangs connect one
hurries at a time, and then others have as long as that took, from the moment at which the first of
them goes on with its work. So short turns have at most half of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from leased.core import orders
from leased.core.deadlines import Deadlines
from leased.core.rules import SHORT_NS, Rules
from leased.core.state import FOREVER, Kept, Lease, Tenant
from leased.memory.share import Place

PATIENCE_NS = 1_000_000_000
TURNS = 3  # for one signal
SIGNAL_NS = 60_000_000_000
AGAIN_NS = 20_000_000_000  # from the beginning of a short turn to that of the tenant's next one
KEEP_NS = 60_000_000_000  # for so long a place is kept for a tenant that does not ask for a lease
OWED_NS = 60_000_000_000  # others have so much after a short turn where none of them goes on
# Places before all that a policy gives: of those that hurry, and behind them of those that were
# interrupted. Arrivals are far smaller than the difference.
HURRIES = -1 << 170
INTERRUPTED = -1 << 169


@dataclass
class Pace:
    """Of a device: how long the last short turn took, and when the next one may begin, ns."""

    took: int = 0
    next_at: int = 0


class ShortTurns:
    """asked: waiters that have handled a signal, in order. starts: when they may begin to hurry, as
    far as that is known. under_way: by tenant that hurries or has a short turn, since when, and all
    devices that are connected with its own, as bits. owed: devices where others have not gone on
    since the last one."""

    def __init__(self, rules: Rules, passed: Callable[[int], None]):
        self.rules = rules
        self.asked: dict[int, Tenant] = {}
        self.starts: Deadlines[int] = Deadlines(passed)
        self.under_way: dict[int, tuple[int, int]] = {}
        self.paces = {uuid: Pace() for uuid in rules.devices}
        self.owed = 0

    # -- a waiter hurries -------------------------------------------------------------------

    def ask(self, tenant: Tenant, now: int) -> None:
        """A process of the tenant has handled a signal. That has no effect if it does not wait."""
        if not tenant.waiting:
            return
        tenant.short_left, tenant.short_until = TURNS - tenant.hurries, now + SIGNAL_NS
        if not tenant.hurries:
            self.asked.setdefault(tenant.id, tenant)
            self.lines_up(tenant, now)

    def lines_up(self, tenant: Tenant, now: int) -> None:
        """The tenant is in the line now."""
        if tenant.id in self.asked and tenant.place is not None:
            self.starts.put(tenant.id, now)

    def begin(self, now: int) -> Iterator[Tenant]:
        """Those that hurry from now on."""
        while (number := self.starts.pop(now)) is not None:
            tenant = self.asked[number]
            mask = self.rules.connected(tenant.mask)
            when = self._may_begin(tenant, mask)
            if tenant.place is None or when is None:
                continue  # it is looked at again once the other one is over
            if when > now:
                self.starts.put(number, when)
                continue
            del self.asked[number]
            self.under_way[number] = now, mask
            ran_ns = tenant.kept.ran_ns if tenant.kept else 0
            tenant.hurries, tenant.short_at = True, now
            tenant.short_left -= 1
            tenant.kept = Kept(tenant.place, ran_ns)
            yield tenant

    def _may_begin(self, tenant: Tenant, mask: int) -> int | None:
        """When, as far as is known; None: after another one. mask: the devices connected with its
        own."""
        if any(mask & devices for _, devices in self.under_way.values()):
            return None
        again = tenant.short_at + AGAIN_NS if tenant.short_at is not None else 0
        paces = [self.paces[device.uuid].next_at for device in self.rules.on(mask)]
        return max(self.rules.now, again, *paces)

    def place(self, tenant: Tenant, usual: Place) -> Place:
        """Of a waiter whose policy gives it the usual one."""
        if tenant.hurries:
            return HURRIES + tenant.arrival
        return min(usual, tenant.kept.place) if tenant.kept else usual

    # -- who is interrupted for it -----------------------------------------------------------

    def interrupt(self, holder: Tenant) -> None:
        """The holder is revoked: if that is for a waiter that hurries, or one that is to hold what
        was lent, the place of the holder and what is left of its quantum are kept."""
        lease, rules = holder.held, self.rules
        waiter = rules.tenants.get(lease.waiter) if lease.waiter is not None else None
        if waiter is None or lease.short or lease.until != FOREVER:
            return
        if not waiter.hurries and waiter.ordered != orders.HOLD:
            return
        ran_ns = lease.ran_ns if lease.restoring else rules.now - lease.since
        if ran_ns >= rules.quantum(holder):
            return
        lease.kept = Kept(INTERRUPTED + holder.arrival, ran_ns)
        holder.debt_ns += lease.paid_ns
        lease.paid_ns = 0

    def asks(self, tenant: Tenant, now: int) -> None:
        """The tenant asks for a lease. A place that was kept for it for too long is lost."""
        if tenant.kept and now >= tenant.kept.until:
            tenant.kept = None
        if tenant.short_left and now < tenant.short_until:
            self.asked[tenant.id] = tenant

    # -- leases ------------------------------------------------------------------------------

    def granted(self, lease: Lease, short: bool, kept: Kept | None) -> None:
        """The lease begins. short: it is a short turn. kept: for its tenant until now."""
        lease.short = short
        if short:
            lease.kept = kept
        elif kept:
            lease.ran_ns = kept.ran_ns
            lease.since -= kept.ran_ns

    def goes_on(self, lease: Lease, mask: int, now: int, restore_ns: int = 0) -> None:
        """The quantum of this lease of these devices begins or goes on, after such a restore."""
        owed = self.owed & mask
        if not owed or lease.short or lease.until != FOREVER:
            return
        self.owed &= ~owed
        for device in self.rules.on(owed):
            pace = self.paces[device.uuid]
            pace.next_at = now + pace.took + restore_ns
        self._look_again()

    def released(self, tenant: Tenant, charged: bool, now: int) -> None:
        """The tenant releases its lease in order. charged: its policy counts what it has had."""
        lease = tenant.held
        if lease.kept:
            tenant.kept = Kept(lease.kept.place, lease.kept.ran_ns, now + KEEP_NS)
        if lease.short and not charged:
            tenant.debt_ns += min(now - lease.since, SHORT_NS)

    def leaves_line(self, tenant: Tenant, now: int) -> None:
        """The tenant waits no more, or could not run."""
        self.starts.put(tenant.id, None)
        if tenant.hurries or tenant.kept:
            tenant.hurries, tenant.kept = False, None
            self.over(tenant, now)

    def forget(self, tenant: Tenant) -> None:
        """The tenant waits no more."""
        if self.asked.pop(tenant.id, None):
            self.starts.put(tenant.id, None)

    def over(self, tenant: Tenant, now: int) -> None:
        """The tenant does not hurry any more, and has no short turn."""
        found = self.under_way.pop(tenant.id, None)
        if found is None:
            return
        since, mask = found
        self.owed |= mask
        for device in self.rules.on(mask):
            self.paces[device.uuid] = Pace(now - since, now + OWED_NS)
            for holder in device.holders.values():
                lease = holder.lease
                if holder.heeds and lease and not lease.revoked and not lease.restoring:
                    self.goes_on(lease, device.bit, now)
        self._look_again()

    def _look_again(self) -> None:
        """Those who have asked may begin at another time."""
        connected: dict[int, int] = {}
        for number, tenant in self.asked.items():
            if tenant.place is not None:
                mask = connected.get(tenant.mask)
                if mask is None:
                    mask = connected[tenant.mask] = self.rules.connected(tenant.mask)
                self.starts.put(number, self._may_begin(tenant, mask))
