"""Whose turn it is, and which waiters may fill the gap before that turn.

Waiters are looked at in their order. A waiter that competes with none before it is at the
front; all others are behind a waiter. A waiter at the front whose devices are free is granted.
A waiter behind others whose devices are free may fill the gap until the waiters at the front
can have them (Slurm calls this backfill), if that is worth a handoff. An offline waiter fills no
gap before an online one, for which it would have to make way at once.

A waiter at the front gets its devices when the last holder in its way has released. Holders that
only fill a gap never make it longer: each was let in until the gap ended then. They have to be
waited for all the same, so where all other holders have gone sooner the gap ends with the last of
those that fill it. Once all are revoked no waiter is let in any more. If a holder does not release
in time the gap is open once more (Tenant.late), until that holder is passed over. So a waiter at
the front waits for at most a quantum and four drains: two until a holder has overrun and is passed
over, and two more for a tenant that was let in meanwhile.
"""

from __future__ import annotations

from leased.core import classes, orders
from leased.core.rules import BACKFILL_NS, Rules
from leased.core.state import ALONE, FOREVER, FREE, SHARE, Tenant
from leased.memory.share import Place

Front = tuple[Tenant, int]  # a waiter at the front, and when the gap before its turn ends


class Turns:
    """Asked after every change, until no waiter can be granted."""

    def __init__(self, rules: Rules):
        self.rules = rules

    def next(self, mask: int) -> tuple[Tenant, int] | None:
        """The waiter that is granted next of those for these devices, and until when it may hold
        its gang without delaying those before it; None: no waiter can be granted."""
        mask &= ~self.rules.alone_mask
        found, free = self._walk(mask) if mask else None, self.rules.free
        if free:
            first = min(free.values(), key=lambda tenant: tenant.place or 0)
            if found is None or (first.place or 0) < (found[0].place or 0):
                return first, FOREVER
        return found

    def has_come(self, waiter: Tenant) -> bool:
        """Nobody is before the waiter, and whoever holds its devices has had its time."""
        if waiter.heeds == FREE:
            return True
        if any(device.line[0][1] is not waiter for device in waiter.devices):
            return False
        return all(self._is_over(holder, waiter) for holder in self.rules.in_the_way(waiter))

    def _is_over(self, holder: Tenant, waiter: Tenant) -> bool:
        lease = holder.held
        due = lease.due is not None and lease.due <= self.rules.now
        return lease.revoked or (due and lease.waiter == waiter.id)

    def _waiters(self, mask: int) -> list[tuple[Place, Tenant]]:
        """Those in the line for one of these devices, in their order."""
        devices = self.rules.on(mask)
        if len(devices) == 1:
            return devices[0].line
        lines = [device.line for device in devices if device.line]
        if len(lines) < 2:
            return lines[0] if lines else []
        return sorted({entry for line in lines for entry in line})

    def _walk(self, mask: int) -> tuple[Tenant, int] | None:
        """Along the line for these devices, to the first who is let in."""
        fronts: list[Front] = []
        # Devices for which somebody has been passed, and of these who shares with nobody; the same
        # of those for whom offline ones make way at once; and those that nobody is let in to.
        passed = passed_alone = first = first_alone = shut = 0
        taken = (0, self.rules.alone_mask, self.rules.locked_mask)
        for place, waiter in self._waiters(mask):
            heeds, wanted = waiter.heeds, waiter.mask
            behind = wanted & (passed if heeds == ALONE else passed_alone)
            yields = waiter.offline and wanted & (first if heeds == ALONE else first_alone)
            waits = waiter.ordered == orders.LINE or yields
            if not wanted & (taken[heeds] | shut) and not waits:
                if wanted & ~mask:  # what is before it there has not been looked at
                    return self._walk(mask | wanted)
                until = self._gap(waiter, fronts) if behind else FOREVER
                if until == FOREVER or self.rules.is_worth(waiter, until - self.rules.now):
                    return waiter, until
            elif not behind and wanted & taken[heeds]:
                if self._is_behind(place, waiter, wanted & ~mask):
                    waiter.late = None
                else:
                    fronts.append((waiter, self._begins(waiter)))
                    if heeds == ALONE and fronts[-1][1] - self.rules.now < BACKFILL_NS:
                        shut |= wanted
            passed |= wanted
            if heeds == ALONE:
                passed_alone |= wanted
            if place < classes.AHEAD:
                first |= wanted
                first_alone |= wanted if heeds == ALONE else 0
            if not mask & ~shut:
                break
        return None

    def _is_behind(self, place: Place, waiter: Tenant, mask: int) -> bool:
        """A waiter before this place competes with it for one of these devices."""
        for device in waiter.devices if mask else ():
            if device.bit & mask:
                for other, tenant in device.line:
                    if other >= place:
                        break
                    if ALONE in (waiter.heeds, tenant.heeds):
                        return True
        return False

    def _gap(self, waiter: Tenant, fronts: list[Front]) -> int:
        """When the turn begins of the first of these who needs a device of the waiter."""
        return min([until for front, until in fronts if _compete(front, waiter)], default=FOREVER)

    # -- fronts -----------------------------------------------------------------------

    def _begins(self, front: Tenant) -> int:
        """When those in the way of this waiter will have ended, drains aside. Notes until when the
        gap is open once more."""
        last, filled, overdue = self._ends(front)
        if last is not None:  # also again: the site's lock or its policy has put one in its way
            front.late = None
        elif front.late is None:
            front.late = overdue
        return self._until(front, last, filled)

    def _ends(self, front: Tenant) -> tuple[int | None, int | None, int | None]:
        """Of the holders in its way, when the last of those will have ended that fill no gap, of
        those that do, and when the last that has overrun is passed over; None: there is none."""
        last: int | None = None
        filled: int | None = None
        overdue: int | None = None
        for holder in self.rules.in_the_way(front):
            lease = holder.lease
            assert lease is not None
            due = lease.due
            if due is None:
                continue
            if lease.revoked:
                if lease.overrun_at is not None:
                    overdue = due if overdue is None or due > overdue else overdue
            elif lease.until == FOREVER:
                last = due if last is None or due > last else last
            else:
                filled = due if filled is None or due > filled else filled
        return last, filled, overdue

    def _until(self, front: Tenant, last: int | None, filled: int | None) -> int:
        now = self.rules.now
        ends = front.late if last is None else last
        return max(now, ends or now, filled or now)


def _compete(one: Tenant, other: Tenant) -> bool:
    """Not both can hold the devices that they have in common."""
    return one.mask & other.mask != 0 and not (one.heeds == other.heeds == SHARE)
