"""What the placer does next: Slurm's answers and what is remembered go in, changes of jobs come
out.

A job with labels or a share is put off by its begin time: gpu_share.lua sets it when the job is
submitted, and the placer moves it on while the job fits nowhere. So whatever happens to the placer,
each job begins by itself when its begin time comes. A job that fits may start at once, on the node
where it fits. If it then does not start, because Slurm has reasons of its own, it is put off again,
so that it blocks no place for others.
"""

from __future__ import annotations

from dataclasses import replace

from leased.placer import marks
from leased.placer.forecast import stays_of
from leased.placer.keeping import Pending, give_others_a_turn, kept, kept_no_longer
from leased.placer.model import Settings, Ticket, Tickets, Understand, Update, View
from leased.placer.pairing import pairs
from leased.placer.placing import place, step_array, tasks_now, wait
from leased.placer.putting_off import (
    keep_waiting,
    leave_to_slurm,
    left_to_slurm,
    put_off,
    take_back,
)
from leased.placer.reserving import Reserved, reserve
from leased.placer.turn import (
    Change,
    Turn,
    changed,
    cleared,
    is_bound,
    start_at,
    ticket_of,
    unbound,
)
from leased.slurm.queue_json import QueuedJob

GRACE_S = 20  # for a placer that starts within this time, to take over the jobs of one that stops
SOON_S = 30  # before the begin time that its user has set, the placer begins to act on a job


def decide(view: View, tickets: Tickets, settings: Settings, understand: Understand) -> Turn:
    """The turn, with its changes and with what is remembered if none of them is made."""
    turn = Turn.of(view, tickets, settings, understand)
    pending: Pending = []
    for job in turn.view.jobs:
        ticket = turn.ticket(job)
        if job.pending:
            if ticket is not None:
                pending.append((job, ticket))
            else:
                _remove_mark(turn, job)
        elif job.active:
            _count_active(turn, job, ticket)
        _keep_array(turn, job)
    pending.sort(key=lambda one: (-one[0].priority, one[0].job_id))
    for job, ticket in pending:
        turn.tickets[job.key] = ticket
        if turn.waits_to_start(job, ticket):
            turn.take(ticket, job)
            if turn.is_long(ticket):
                turn.closed.add(ticket.node)
    _reserve(turn, pending)
    ready = [(job, ticket) for job, ticket in pending if _may_be_placed(turn, job, ticket)]
    turn.pairs = pairs(turn, ready)
    for job, ticket in pending:
        _decide_pending(turn, job, ticket)
    return turn


def releases(view: View, tickets: Tickets, understand: Understand) -> list[Change]:
    """The changes that give every job back to Slurm which the placer has put off or bound to a
    node.

    The jobs may begin after GRACE_S, in which another placer can take them over: it finds them put
    off, and for how long they have waited.
    """
    found: list[Change] = []
    for job in view.jobs:
        ticket = ticket_of(job, tickets, understand)
        if not job.pending or ticket is None:
            continue
        ours = ticket.until > view.now + GRACE_S and job.begin == ticket.until
        start = max(ticket.begin, view.now + GRACE_S) if ours else None
        node = "" if is_bound(job, ticket) else None
        update = cleared(job, "given back to Slurm", start=start, node=node)
        if update.changes:
            until = ticket.until if update.start is None else update.start
            found.append((update, job.key, replace(ticket, until=until)))
    return found


def _reserve(turn: Turn, pending: Pending) -> None:
    """Find for whom a GPU is kept, and let it be the first that is placed. Jobs for which
    none can be kept, whatever ends, come behind those that have not been looked at for them."""
    late = turn.view.now - turn.settings.reserve_s
    give_others_a_turn(turn, pending)
    found, in_vain = _reservation(turn, pending)
    for at, (job, ticket) in enumerate(pending):
        if found is not None and job.key == found.job.key:
            pending[at] = job, kept(ticket, found.free, turn.view.now)
        elif job.key in in_vain:
            pending[at] = job, replace(kept_no_longer(ticket), since=late)
        else:
            pending[at] = job, kept_no_longer(ticket)
    turn.reserved = found
    if found is not None:
        pending.sort(key=lambda one: one[0].key != found.job.key)


def _reservation(turn: Turn, pending: Pending) -> tuple[Reserved | None, frozenset[str]]:
    long = [
        (unbound(job, ticket), ticket)
        for job, ticket in pending
        if turn.is_long(ticket) and _may_be_placed(turn, job, ticket)
    ]
    if not long:
        return None, frozenset()
    for job in turn.view.jobs:
        for node, stay in stays_of(turn.cluster, job, turn.ticket(job)) if job.active else ():
            turn.stays.setdefault(node, []).append(stay)
    return reserve(turn.cluster, turn.stays, long, turn.view.now)


def _may_be_placed(turn: Turn, job: QueuedJob, ticket: Ticket) -> bool:
    """Whether only a place is missing to the job."""
    settled = ticket.runs or ticket.free or ticket.let_at or left_to_slurm(turn, job, ticket)
    return (
        not settled
        and not (job.tasks and not tasks_now(turn, job))
        and not _waits_for_others(turn, job, ticket)
        and not _is_later(turn, job, ticket)
    )


def _is_later(turn: Turn, job: QueuedJob, ticket: Ticket) -> bool:
    """Whether its user has set a begin time that has not come."""
    return job.begin not in (0, ticket.until) and job.begin > turn.view.now + SOON_S


def _waits_for_others(turn: Turn, job: QueuedJob, ticket: Ticket) -> bool:
    """Whether it may not begin yet for reasons that have nothing to do with places."""
    now = turn.view.now
    tried = 0 < ticket.retry_at - now <= turn.settings.backoff_s
    return job.held or now < ticket.begin or tried


def _keep_array(turn: Turn, job: QueuedJob) -> None:
    """What is remembered of an array is kept while Slurm has one of its tasks."""
    array = turn.known.get(str(job.array_id)) if job.array_id else None
    if array is not None and array.user_id == job.user_id:
        turn.tickets.setdefault(str(job.array_id), array)


def _remove_mark(turn: Turn, job: QueuedJob) -> None:
    """The mark cannot be understood, or the job has no shard: leave the job to Slurm."""
    mark = marks.mark_of(job.admin_comment)
    if mark is not None and not job.is_het:
        waits = job.begin == mark.until
        update = Update(
            job.label,
            start=start_at(mark.begin, turn.view.now) if waits else None,
            admin_comment=changed(job.admin_comment, marks.without_mark(job.admin_comment)),
            why="the placer does not understand its mark",
        )
        if update.changes:
            turn.urgent.append((update, job.key, None))


def _count_active(turn: Turn, job: QueuedJob, ticket: Ticket | None) -> None:
    """The job has begun, and has its GPUs until Slurm says that it has none."""
    for node, stay in stays_of(turn.cluster, job, ticket) if job.given else ():
        for index, shards in stay.given.items():
            turn.cluster.take(node, index, shards, stay.request)
            turn.there.setdefault((node, index), []).append(job)
    if ticket is None:
        return
    now_runs = replace(ticket, runs=True, until=0, tries=0, retry_at=0, since=0)
    turn.tickets[job.key] = now_runs
    update = cleared(job, "it runs")
    if job.given and update.changes:
        turn.words.append((update, job.key, now_runs))


def _decide_pending(turn: Turn, job: QueuedJob, ticket: Ticket) -> None:
    """Decide what happens to a pending job."""
    now = turn.view.now
    if ticket.runs:  # it was requeued
        ticket = replace(ticket, runs=False, let_at=0, gpu=-1, free=False, begin=job.begin, since=0)
        turn.tickets[job.key] = ticket
    if ticket.free or turn.waits_to_start(job, ticket):
        return
    if ticket.let_at:
        take_back(turn, job, ticket)
        return
    if _is_later(turn, job, ticket):
        keep_waiting(turn, job, replace(ticket, begin=job.begin, until=0, since=0))
        return
    if job.begin not in (0, ticket.until) and job.begin > now:
        ticket = replace(ticket, begin=job.begin)
    why = left_to_slurm(turn, job, ticket)
    if why:
        leave_to_slurm(turn, job, ticket, why)
    elif _waits_for_others(turn, job, ticket):
        put_off(turn, job, replace(ticket, since=0), "")
    elif job.tasks:
        step_array(turn, job, ticket)
    else:
        reason = place(turn, job, ticket, job.label)
        if reason is not None:
            wait(turn, job, ticket, reason)
