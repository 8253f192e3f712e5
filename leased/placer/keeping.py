"""For how long a GPU is kept for a job.

Where it is known when the job will fit, until then and for placer.reserve_after longer: it has
started by then, unless jobs exceed their time limits or Slurm has put others there. Where nobody
knows, for placer.reserve_after. Then the wait of all long-waiting jobs of its user counts from the
beginning, so that what others may have is not kept from them for ever: not for a job that waits
for one without a time limit, nor for one after the other of a user who has many.
"""

from __future__ import annotations

import math
from dataclasses import replace

from leased.placer.forecast import ENDLESS, Free
from leased.placer.model import Ticket
from leased.placer.turn import Turn
from leased.slurm.queue_json import QueuedJob

Pending = list[tuple[QueuedJob, Ticket]]


def is_over(ticket: Ticket, now: int, reserve_s: int) -> bool:
    """Whether a GPU has been kept for the job for long enough. The clock may be set back."""
    known = 0 < ticket.kept_at <= now
    return known and now >= max(ticket.kept_at, ticket.promised) + reserve_s


def kept(ticket: Ticket, free: Free, now: int) -> Ticket:
    """A GPU is kept for the job, on which it fits then."""
    goes_on = 0 < ticket.kept_at <= now
    promised = ticket.promised if goes_on else 0
    if not promised and free.at != ENDLESS:
        promised = math.ceil(free.at)
    return replace(ticket, kept_at=ticket.kept_at if goes_on else now, promised=promised)


def kept_no_longer(ticket: Ticket) -> Ticket:
    return replace(ticket, kept_at=0, promised=0) if ticket.kept_at else ticket


def give_others_a_turn(turn: Turn, pending: Pending) -> None:
    """Where a GPU has been kept for long enough, let the wait count from the beginning."""
    now, reserve_s = turn.view.now, turn.settings.reserve_s
    users = {
        job.user_id
        for job, ticket in pending
        if turn.is_long(ticket) and is_over(ticket, now, reserve_s)
    }
    for at, (job, ticket) in enumerate(pending):
        if job.user_id in users and turn.is_long(ticket):
            pending[at] = job, replace(kept_no_longer(ticket), since=0)
