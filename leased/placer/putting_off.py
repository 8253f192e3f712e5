"""Jobs that may not start: their begin time is moved on, and their Comment says why."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from leased.placer import marks
from leased.placer.cluster import is_readable
from leased.placer.model import Settings, Ticket, Update
from leased.placer.turn import Turn, changed, cleared, is_bound, start_at, unbound
from leased.slurm.queue_json import QueuedJob

LINE, LONGEST_HOLDS = 50, 12  # see hold_s()
SAY_S = 30  # the shortest time between two changes of a job's reason
UNPLACED: dict[str, Any] = {"node": "", "gpu": -1, "bound": False}


def put_off(turn: Turn, job: QueuedJob, ticket: Ticket, reason: str, *, say: bool = False) -> None:
    """Move its begin time on if that is due, and say why. reason: "": its Comment stays as it is.
    say: at once, however short ago another one was said."""
    now, hold = turn.view.now, hold_s(turn, job)
    left = ticket.until - max(now, ticket.begin)
    set_back = left > LONGEST_HOLDS * turn.settings.hold_s  # the clock was
    due = job.begin != ticket.until or ticket.until - now <= hold // 2 or set_back
    until = max(now, ticket.begin) + hold if due else ticket.until
    words = None
    if reason and (say or due or now - ticket.said_at >= SAY_S):
        words = changed(job.comment, marks.with_reason(job.comment, reason))
    update = Update(
        job.label,
        start=until if due else None,
        node="" if is_bound(job, ticket) else None,
        comment=words,
        why=reason or "it waits",
    )
    after = replace(ticket, **UNPLACED, until=until)
    if words is not None:
        after = replace(after, said_at=now)
    if update.changes:
        queue = turn.urgent if due else turn.words
        queue.append((update, job.key, after))
    turn.tickets[job.key] = ticket


def take_back(turn: Turn, job: QueuedJob, ticket: Ticket) -> None:
    """It was allowed to start, and Slurm has not started it: put it off again."""
    now = turn.view.now
    until = now + turn.settings.hold_s
    after = tried_in_vain(ticket, now, turn.settings)
    after = replace(after, **UNPLACED, let_at=0, said_at=now, until=until)
    if job.begin > now:  # its user has put it off meanwhile
        after = replace(after, begin=job.begin, until=0)
    reason = f"waits: Slurm did not start it on {ticket.node} ({_word(job.reason)})"
    update = Update(
        job.label,
        start=after.until or None,
        node="" if is_bound(job, ticket) else None,
        comment=changed(job.comment, marks.with_reason(job.comment, reason)),
        why=reason,
    )
    turn.urgent.append((update, job.key, after))


def tried_in_vain(ticket: Ticket, now: int, settings: Settings) -> Ticket:
    """It could have started and has not: it is tried again after a pause, and is no longer the one
    that has waited for longest."""
    tries = ticket.tries + 1
    wait = min(settings.backoff_s, settings.settle_s * 2 ** min(tries, 10))
    return replace(ticket, since=0, tries=tries, retry_at=now + wait)


def keep_waiting(turn: Turn, job: QueuedJob, ticket: Ticket) -> None:
    """It may not begin yet, for a reason that is not the placer's: let it wait."""
    turn.tickets[job.key] = ticket
    if is_bound(job, ticket):
        update = Update(job.label, node="", why="its node is chosen again later")
        turn.urgent.append((update, job.key, replace(ticket, node="", bound=False)))


def leave_to_slurm(turn: Turn, job: QueuedJob, ticket: Ticket, why: str) -> None:
    """Let Slurm alone choose its node, and when it begins."""
    start = start_at(ticket.begin, turn.view.now) if job.begin == ticket.until else None
    node = "" if is_bound(job, ticket) else None
    update = cleared(job, f"left to Slurm: {why}", start=start, node=node)
    free = replace(ticket, free=True, until=0, bound=False)
    if update.changes:
        turn.starts.append((update, job.key, free))
    else:
        turn.tickets[job.key] = free


def left_to_slurm(turn: Turn, job: QueuedJob, ticket: Ticket) -> str:
    """Why the placer cannot know where the job may run, and leaves it to Slurm; "": it can."""
    job = unbound(job, ticket)
    if job.is_het:
        return "it is part of a heterogeneous job"
    if job.reservation:
        return "it asks for a reservation"
    if job.deadline:
        return "it has a deadline"
    if job.features and not is_readable(job.features):
        return "its features are not a plain list of names"
    if not job.tasks and job.required and job.required not in turn.cluster.nodes:
        return "it names several nodes, or one that is not known"
    return ""


def hold_s(turn: Turn, job: QueuedJob) -> int:
    """For how long to put the job off. Each further LINE of jobs of one user is put off for longer,
    up to LONGEST_HOLDS times as long, so that thousands of them cost few changes."""
    turn.waiting[job.user_id] = behind = turn.waiting.get(job.user_id, 0) + 1
    return turn.settings.hold_s * min(LONGEST_HOLDS, 1 + behind // LINE)


def _word(reason: str) -> str:
    return "".join(c for c in reason if c.isalnum() or c in "_ ")[:60] or "no reason given"
