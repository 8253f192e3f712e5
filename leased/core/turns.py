"""Whose turn it is, and which waiters may fill the gap before that turn.

Waiters are looked at in their order. A waiter that competes with none before it is at the
front; all others are behind a waiter. A waiter at the front whose devices are free is granted.
A waiter behind others whose devices are free may fill the gap until the waiters at the front
can have them (Slurm calls this backfill), if that is worth a handoff.

A waiter at the front gets its devices when the last holder in its way has released. Holders that
only fill a gap do not count for this, so they never make the gap longer: once all other holders
have been revoked the gap is over, and no waiter is let in any more. If a holder does not release
in time the gap is open once more (`late`), until that holder is passed over. So a waiter at the
front waits for at most a quantum and four drains: two until a holder has overrun and is passed
over, and two more for a tenant that was let in meanwhile.
"""

from __future__ import annotations

from leased.core.cohort import ALONE, FREE, SHARE, Cohort, in_the_way
from leased.core.cohorts import PRICED
from leased.core.look import Front, Look
from leased.core.rules import BACKFILL_NS, Rules
from leased.core.state import FOREVER, Tenant

NEAR = 4  # where so many times as many devices are connected, only the fronts near by are looked at


class Turns:
    """Asked after every change, until no waiter can be granted.

    After a grant a look along the line goes on where it stopped. Its outcome is kept as long as
    nothing happens that may let in a waiter that it has already passed.
    """

    def __init__(self, rules: Rules):
        self.rules = rules
        # By tenant at the front: until when its gap is open once more (see the module's text).
        self.late: dict[int, int] = {}
        self.look: Look | None = None

    def next(self, mask: int) -> tuple[Tenant, int] | None:
        """The waiter for these devices that is granted next, and until when it may hold them
        without delaying those before it; None: no waiter can be granted."""
        cohorts = self.rules.cohorts
        look, self.look = self.look, None
        if look is None or not self._goes_on(look, mask):
            first = cohorts.next_at_once(mask)
            if first is not None and first.first is not None:
                cohorts.openings.watch(0)
                return first.first, FOREVER
            look = self.begin(mask)
        found = None
        if look.place < look.last:
            found = self._walk(look)
            if found is None:
                self._forget_others(mask, look.fronts)
        if found is None:
            look.finish()
        stands = look.is_whole and not look.refused and cohorts.anybody_waits()
        if stands:
            self.look = look
        cohorts.openings.watch(mask if stands else 0)
        cohorts.holders.ends.take_moved()
        return found

    def begin(self, mask: int) -> Look:
        """A new look along the line for these devices."""
        able = self.rules.cohorts.able(mask)
        look = Look(mask, self._near(able, mask))
        if able:
            first = self.rules.cohorts.first_locked(mask)
            look.last = max([cohort.place for cohort in able])
            free = [cohort.place for cohort in able if cohort.heeds == FREE]
            last = min(free) if free else look.last
            if first is not None and first.place < last and self._is_blocked(first):
                self._add_front(first, look)
            look.add_able(able)
        return look

    def _near(self, able: list[Cohort], mask: int) -> int:
        """The devices whose fronts have to be looked at: those of the cohorts whose devices are
        free, if they are only few of all. But a gap that is open once more is noted when a front is
        passed, so all fronts are passed as long as there may be such a gap."""
        if not able or self.late or self.rules.cohorts.holders.overdue:
            return mask
        near, most = 0, mask.bit_count() // NEAR
        for cohort in able:
            near |= cohort.mask
            if near.bit_count() > most:
                return mask
        return near & mask

    def _goes_on(self, look: Look, mask: int) -> bool:
        """Nothing has happened since then for which the look would have to begin again. Who has
        lined up in the part that is still to be looked at is put there."""
        cohorts = self.rules.cohorts
        openings, holders, queued = cohorts.openings, cohorts.holders, cohorts.queued
        if look.mask != mask or openings.wide:
            return False
        if openings.left is not None and openings.left < look.place:
            return False
        moved, waited_for = holders.ends.take_moved(), look.waited_for
        by_any = moved[SHARE] | moved[ALONE]
        if moved[ALONE] & waited_for[SHARE] or by_any & waited_for[ALONE]:
            return False
        for cohort in openings.came.values():
            blocked = self._is_blocked(cohort)
            if cohort.place > look.place:
                if not blocked:
                    look.insert(cohort)
            elif not look.is_no_news(cohort, blocked, queued.is_behind(cohort.place, cohort)):
                return False
        return True

    def _walk(self, look: Look) -> tuple[Tenant, int] | None:
        """Along the line from where the look has come to, to the first who is let in. Whoever
        stands behind nobody and has to wait is passed as a front."""
        leaders = self.rules.cohorts.queued.leading(look.near, look.place)
        leader = next(leaders, None)
        shut, holders = look.shut, self.rules.cohorts.holders
        taken = [holders.taken(heeds) for heeds in (FREE, SHARE, ALONE)]
        while look.at < len(look.able):
            place, cohort = look.able[look.at]
            look.at += 1
            has_left = cohort.first is None or cohort.place != place
            if has_left or cohort.mask & (shut[cohort.heeds] | taken[cohort.heeds]):
                continue
            while leader is not None and leader.place < place:
                if leader.mask & taken[leader.heeds]:
                    self._add_front(leader, look)
                leader = next(leaders, None)
            look.place = place
            found = self._judge(cohort, look)
            if found is not None:
                return found
        while leader is not None and leader.place <= look.last:
            if leader.mask & taken[leader.heeds]:
                self._add_front(leader, look)
            leader = next(leaders, None)
        return None

    def _is_blocked(self, cohort: Cohort) -> bool:
        """Some devices of the cohort are not free for it."""
        return cohort.mask & self.rules.cohorts.holders.taken(cohort.heeds) != 0

    def _judge(self, cohort: Cohort, look: Look) -> tuple[Tenant, int] | None:
        """The cohort's devices are free. Which of it can be granted for as long as the gap is?"""
        if cohort.mask & look.shut[cohort.heeds]:
            return None
        assert cohort.first is not None
        until = look.gap(cohort)
        if until == FOREVER:
            return cohort.first, until
        found = self._worth(cohort, until)
        if found is None and until - self.rules.now >= BACKFILL_NS:
            look.refused = True
        return found

    def _worth(self, cohort: Cohort, until: int) -> tuple[Tenant, int] | None:
        """The first of the cohort for whom a lease for so long is worth the handoff."""
        devices = self.rules.devices
        version = sum(devices[uuid].residency.version for uuid in cohort.gang)
        if cohort.priced and cohort.priced[0] == version and until <= cohort.priced[1]:
            return None
        for _, tenant in cohort.waiting.entries[:PRICED]:
            if self.rules.is_worth(tenant, until - self.rules.now):
                return tenant, until
        cohort.priced = version, until
        return None

    # -- fronts -----------------------------------------------------------------------

    def _add_front(self, cohort: Cohort, look: Look) -> None:
        assert cohort.first is not None
        until = self._begins(cohort.first.id, cohort)
        look.pass_front(Front(cohort.first, until), cohort, self.rules.now)
        look.place = cohort.place

    def _begins(self, tenant: int, cohort: Cohort) -> int:
        """When those in the way of this first waiter of the cohort will have ended, drains
        aside."""
        holders = self.rules.cohorts.holders
        last = holders.ends.last(cohort)
        if self.late or holders.overdue:
            self._note_late(tenant, cohort, last)
        return self._until(tenant, last)

    def _note_late(self, tenant: int, cohort: Cohort, last: int | None) -> None:
        """Note until when the gap is open once more before the turn of this first waiter of the
        cohort. last: when the last lease will have ended that is in its way; None: there is
        none."""
        if last is not None:  # also again: the site's lock or its policy has put one in its way
            self.late.pop(tenant, None)
        elif tenant not in self.late:
            late = self._passed_over_at(cohort)
            if late is not None:
                self.late[tenant] = late

    def _until(self, tenant: int, last: int | None) -> int:
        """The same where that is noted already. last: see _note_late."""
        now = self.rules.now
        return max(now, self.late.get(tenant, now) if last is None else last)

    def _passed_over_at(self, cohort: Cohort) -> int | None:
        """When a holder that has overrun will lose its devices; None: none has."""
        of = self.rules.cohorts.of
        dues = [
            holder.lease.due
            for holder in self.rules.cohorts.holders.overdue.values()
            if holder.lease and holder.lease.due and in_the_way(of[holder.id], cohort)
        ]
        return max(dues, default=None)

    def _forget_others(self, mask: int, fronts: list[Front]) -> None:
        """All who wait for these devices have been looked at, and only these are at the front."""
        if self.late:
            kept = {front.tenant.id for front in fronts}
            of = self.rules.cohorts.of
            for tenant in [n for n in self.late if n not in kept and of[n].mask & mask]:
                del self.late[tenant]

    def forget(self, tenant: int) -> None:
        """The tenant does not wait any more."""
        self.late.pop(tenant, None)

    def free_until(self, tenant: Tenant) -> int:
        """Until when the tenant may hold its gang without delaying those before it. This changes
        nothing."""
        cohorts, place = self.rules.cohorts, tenant.place
        own = cohorts.of[tenant.id]
        return min(
            (
                self._until(leader.first.id, cohorts.holders.ends.last(leader))
                for leader in cohorts.queued.leading(own.mask)
                if place is not None and leader.first is not None and leader.place < place
                if in_the_way(leader, own) and self._is_blocked(leader)
            ),
            default=FOREVER,
        )
