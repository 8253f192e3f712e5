"""What the placer does next: what Slurm says and what is remembered go in, changes of jobs come
out.

A job with labels or a share is put off by its begin time, which gpu_share.lua sets when the job is
submitted and the placer moves on while the job fits nowhere. So whatever becomes of the placer,
each job begins by itself when that time is over. A job that fits is let start at once, on the
node where it fits. A job that then does not start, as Slurm has reasons of its own, is put off
again, so that it keeps no place from others.
"""

from __future__ import annotations

from dataclasses import replace

from leased.placement.api import Request
from leased.placer import marks
from leased.placer.model import Settings, Ticket, Tickets, Understand, Update, View
from leased.placer.placing import place, step_array
from leased.placer.putting_off import leave, left_to_slurm, let, put_off, take_back
from leased.placer.turn import Turn, changed, is_bound, start_at, ticket_of
from leased.slurm.queue_json import QueuedJob

SOON_S = 30  # so long before a begin time of its user's a job is put off


def decide(view: View, tickets: Tickets, settings: Settings, understand: Understand) -> Turn:
    """The turn with its changes, and with what is remembered without any of them."""
    turn = Turn.of(view, tickets, settings, understand)
    pending: list[tuple[QueuedJob, Ticket]] = []
    for job in turn.view.jobs:
        ticket = turn.ticket(job)
        if job.pending:
            if ticket is not None:
                pending.append((job, ticket))
            else:
                _clean(turn, job)
        elif job.active:
            _count(turn, job, ticket)
        _keep_array(turn, job)
    pending.sort(key=lambda one: (-one[0].priority, one[0].job_id))
    for job, ticket in pending:
        turn.tickets[job.key] = ticket
        if turn.waits_to_start(job, ticket):
            turn.take(ticket, job)
    for job, ticket in pending:
        _step(turn, job, ticket)
    return turn


def releases(view: View, tickets: Tickets, understand: Understand, grace_s: int) -> list[Update]:
    """What gives every job back to Slurm that the placer has put off or has bound to a node.

    grace_s: so long after now they may begin, for a placer that takes over.
    """
    found = []
    for job in view.jobs:
        ticket = ticket_of(job, tickets, understand)
        if not job.pending or ticket is None:
            continue
        ours = ticket.until > view.now + grace_s and job.begin == ticket.until
        update = Update(
            job.label,
            start=max(ticket.begin, view.now + grace_s) if ours else None,
            node="" if is_bound(job, ticket) else None,
            comment=changed(job.comment, marks.without_reason(job.comment)),
            admin_comment=changed(job.admin_comment, marks.without_mark(job.admin_comment)),
            why="given back to Slurm",
        )
        if update.changes:
            found.append(update)
    return found


def _keep_array(turn: Turn, job: QueuedJob) -> None:
    """What is remembered of an array stays while one of its tasks is there."""
    array = turn.known.get(str(job.array_id)) if job.array_id else None
    if array is not None and array.user_id == job.user_id:
        turn.tickets.setdefault(str(job.array_id), array)


def _clean(turn: Turn, job: QueuedJob) -> None:
    """A mark that says nothing, or a job without a shard: the job begins as Slurm likes."""
    mark = marks.mark_of(job.admin_comment)
    if mark is not None and not job.is_het:
        waits = job.begin == mark.until
        update = Update(
            job.label,
            start=start_at(mark.begin, turn.view.now) if waits else None,
            admin_comment=changed(job.admin_comment, marks.without_mark(job.admin_comment)),
            why="its mark says nothing that the placer knows",
        )
        if update.changes:
            turn.urgent.append((update, job.key, None))


def _count(turn: Turn, job: QueuedJob, ticket: Ticket | None) -> None:
    """A job that has begun. It has its GPUs until Slurm says that it has none."""
    for index, shards in job.given.items():
        request = ticket.request if ticket else Request()
        turn.cluster.take(job.nodes, index, shards, request)
    if ticket is None:
        return
    now_runs = replace(ticket, runs=True, until=0, tries=0, retry_at=0)
    turn.tickets[job.key] = now_runs
    update = Update(
        job.label,
        comment=changed(job.comment, marks.without_reason(job.comment)),
        admin_comment=changed(job.admin_comment, marks.without_mark(job.admin_comment)),
        why="it runs",
    )
    if job.given and update.changes:
        turn.words.append((update, job.key, now_runs))


def _step(turn: Turn, job: QueuedJob, ticket: Ticket) -> None:
    """What becomes of a pending job."""
    now = turn.view.now
    if ticket.runs:  # it was requeued
        ticket = replace(ticket, runs=False, let_at=0, gpu=-1, free=False, begin=job.begin)
        turn.tickets[job.key] = ticket
    if ticket.free or turn.waits_to_start(job, ticket):
        return
    if ticket.let_at:
        take_back(turn, job, ticket)
        return
    others = job.begin not in (0, ticket.until) and job.begin > now
    if others:
        ticket = replace(ticket, begin=job.begin)
        if job.begin > now + SOON_S:  # a begin time of its user's
            leave(turn, job, replace(ticket, until=0))
            return
    why = left_to_slurm(turn, job)
    if why:
        let(turn, job, ticket, why)
    elif job.held or now < max(ticket.begin, ticket.retry_at):
        put_off(turn, job, ticket, "")
    elif job.tasks:
        step_array(turn, job, ticket)
    else:
        reason = place(turn, job, ticket, job.label)
        if reason is not None:
            put_off(turn, job, ticket, reason)
