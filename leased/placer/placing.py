"""Finds a node for a pending job: one on which Slurm would choose a GPU where the job fits."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from leased.core.classes import ONLINE
from leased.placement import kubeshare
from leased.placement.api import NoDevice, Placed
from leased.placer.choosing import choose
from leased.placer.cluster import Offer
from leased.placer.keeping import kept_no_longer
from leased.placer.model import NOW, Ticket
from leased.placer.putting_off import hold_s, put_off
from leased.placer.turn import Turn, cleared, is_bound, unbound
from leased.slurm.queue_json import QueuedJob

TASKS = 16  # of an array that are tried in one turn
KEPT = "is kept for it"
NEVER = "it can never start"
TRIES = 64  # different requests of one user that are tried in one turn


def step_array(turn: Turn, job: QueuedJob, ticket: Ticket) -> None:
    """Place tasks of the array one after the other, as long as they fit. If none fits, the array as
    a whole is put off."""
    most = tasks_now(turn, job)
    if not most:
        put_off(turn, job, replace(ticket, since=0), "")
        return
    late = ticket.until - turn.view.now <= hold_s(turn, job) // 4
    tasks = [] if late else labels(turn, job)
    for placed, label in enumerate(tasks):
        reason = place(turn, job, ticket, label)
        if reason is not None:
            if not placed:
                wait(turn, job, ticket, reason)
            break
        turn.tickets[job.key] = replace(ticket, since=0)
    if not tasks:
        put_off(turn, job, ticket, "")


def labels(turn: Turn, job: QueuedJob) -> list[str]:
    """Of the job, or of the tasks of the array that may be tried now."""
    if not job.tasks:
        return [job.label]
    tasks = itertools.islice(_tasks(job.tasks), tasks_now(turn, job))
    return [f"{job.array_id}_{task}" for task in tasks]


def tasks_now(turn: Turn, job: QueuedJob) -> int:
    """How many tasks of the array may be tried, by its own limit."""
    if not job.tasks_at_once:
        return TASKS
    out = sum(
        1
        for other in turn.view.jobs
        if other.array_id == job.array_id and not other.tasks and not other.held
    )
    return max(0, min(job.tasks_at_once - out, TASKS))


def wait(turn: Turn, job: QueuedJob, ticket: Ticket, reason: str) -> None:
    """The job fits nowhere. reason: "": it was not tried."""
    if reason.startswith(NEVER):
        ticket = replace(ticket, since=0)
    elif reason and not 0 < ticket.since <= turn.view.now:
        ticket = replace(ticket, since=turn.view.now)
    kept = turn.reserved
    if reason and kept is not None and kept.job.key == job.key:
        reason = reason.replace("waits: ", f"waits: {kept.node} {KEPT}; ", 1)
        put_off(turn, job, ticket, reason, say=KEPT not in job.comment)
    else:
        put_off(turn, job, ticket, reason)


def place(turn: Turn, job: QueuedJob, ticket: Ticket, label: str) -> str | None:
    """Let the job start if it fits somewhere. Returns None if so; else why not, "" if unknown."""
    kind = _kind(turn, job, ticket)
    reason = turn.said.get(kind)
    if reason is not None:
        return reason
    tried = turn.tries.get(job.user_id, 0)
    if tried >= TRIES:
        return ""
    asked = unbound(job, ticket)
    offers = turn.offers(asked, ticket)
    answer = choose(ticket, _best(turn, label, offers))
    if not isinstance(answer, Placed):
        answer = choose(ticket, offers)
    if isinstance(answer, Placed):
        _start(turn, job, ticket, label, answer.device.name)
        return None
    turn.tries[job.user_id] = tried + 1
    turn.said[kind] = reason = _words(turn, asked, ticket, answer if offers else None)
    return reason


def _best(turn: Turn, label: str, offers: list[Offer]) -> list[Offer]:
    """Those that are tried before all others: of an offline job the one that it is matched with, of
    an online one those without another."""
    if any(each.request.job_class == ONLINE for each in offers):
        return [each for each in offers if not _has_online(each)]
    return [each for each in offers if each.place == turn.pairs.get(label)]


def _has_online(offer: Offer) -> bool:
    return any(tenant.job_class == ONLINE for tenant in offer.device.tenants)


def _words(turn: Turn, job: QueuedJob, ticket: Ticket, answer: NoDevice | None) -> str:
    """answer: None: it was offered nothing."""
    could = turn.empty.offers(job, ticket)
    alone = choose(ticket, could)
    if isinstance(alone, NoDevice):
        return f"{NEVER}: {_never(turn, job, ticket, alone)}"
    if answer is None:
        nodes = dict.fromkeys(offer.place[0] for offer in could if not offer.device.shut)
        return f"waits: {kubeshare.no_gpu([(n, turn.cluster.refusal(job, n)) for n in nodes])}"
    return f"waits: {answer.reason}"


def _never(turn: Turn, job: QueuedJob, ticket: Ticket, answer: NoDevice) -> str:
    forbidden = turn.empty.forbidden(job, ticket)
    if forbidden:
        return forbidden
    if not turn.empty.offers(job, ticket):
        kind = f" of type {job.gpu_type}" if job.gpu_type else ""
        return f"no node that it may use has a GPU{kind} that jobs share"
    return f"even with no other job there {answer.reason}"


def _start(turn: Turn, job: QueuedJob, ticket: Ticket, label: str, device: str) -> None:
    node, gpu = turn.places[device]
    bind = not job.required or is_bound(job, ticket)
    then = replace(
        kept_no_longer(ticket),
        node=node,
        gpu=gpu,
        bound=bind,
        let_at=turn.view.now,
        until=0,
        runs=False,
    )
    why, place = f"it fits on {device}", node if bind else None
    update = cleared(job, why, label=label, start=NOW, node=place)
    turn.take(then, job)
    if turn.reserved is not None and turn.reserved.job.key == job.key:
        turn.reserved = None
        turn.closed.add(node)
    turn.said = {k: v for k, v in turn.said.items() if not _seeks_same(k, ticket)}
    turn.starts.append((update, label, then))


def _kind(turn: Turn, job: QueuedJob, ticket: Ticket) -> tuple[object, ...]:
    """What decides where a job fits: jobs of the same kind fit on the same GPUs."""
    return (
        *(ticket.request, ticket.options, job.shards, job.gpu_type, job.partitions, job.required),
        *(job.excluded, job.features, job.cpus, job.memory, job.user_id, job.qos, job.account),
        job.limit_s if turn.reserved else 0,
    )


def _seeks_same(kind: object, ticket: Ticket) -> bool:
    """Whether jobs of the kind may fit somewhere now, since a GPU has just got the label that they
    seek."""
    assert isinstance(kind, tuple)
    return bool(ticket.request.seeks) and kind[0].seeks == ticket.request.seeks


def _tasks(text: str) -> Iterator[int]:
    """The numbers of a list of tasks such as "1-3,7". Slurm may have cut it."""
    for part in text.split(","):
        low, _, high = part.partition("-")
        high, _, step = high.partition(":")
        if not low.isdecimal() or (high and not high.isdecimal()):
            return
        yield from range(int(low), int(high or low) + 1, int(step) if step.isdecimal() else 1)
