"""Keeps a node's GPU for the job that has waited longest: without that, a job that wants an idle
GPU or a large share would wait for as long as smaller jobs keep coming.

One job at a time has a reservation: the one that has fitted nowhere for longest, once that is
longer than the site allows (placer.reserve_after). It is for the node where the job will fit first
by the time limits of the jobs that are there. A job that would make it fit later does not go there;
one that ends in time, or is not in its way, does. Both are decided anew in each turn, by what is
true then: so the time at which the job fits only comes nearer, as far as the placer can see to it.
keeping.py says when it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from leased.placement.api import Label
from leased.placer.cluster import Cluster, Offer
from leased.placer.forecast import Free, Stay, forecast, labelled_elsewhere, stay_of, take
from leased.placer.model import Ticket
from leased.slurm.queue_json import QueuedJob

KEPT = "it is kept for a job that has waited for longer"
TRIES = 8  # jobs that are looked at for one that can have a reservation
Stays = Mapping[str, Sequence[Stay]]


@dataclass(frozen=True)
class Reserved:
    """job: without a node to which the placer has bound it. free: when it fits there. label: what
    it seeks there. elsewhere, now: see forecast()."""

    job: QueuedJob
    ticket: Ticket
    node: str
    free: Free
    label: Label | None
    elsewhere: tuple[Offer, ...]
    now: int


def reserve(
    cluster: Cluster, stays: Stays, waiting: Iterable[tuple[QueuedJob, Ticket]], now: int
) -> tuple[Reserved | None, frozenset[str]]:
    """The reservation, and the keys of jobs for which none is possible, where they have kept others
    from being looked at. waiting: jobs that have waited for long enough, and could start now."""
    order = sorted(waiting, key=lambda one: (one[1].since, -one[0].priority, one[0].job_id))
    in_vain: set[str] = set()
    for job, ticket in order[:TRIES]:
        found = _best(cluster, stays, job, ticket, now)
        if found is not None:
            return found, frozenset()
        in_vain.add(job.key)
    return None, frozenset(in_vain if len(order) > TRIES else ())


def _best(
    cluster: Cluster, stays: Stays, job: QueuedJob, ticket: Ticket, now: int
) -> Reserved | None:
    """On the node where the job fits first; None: it fits nowhere, whatever ends."""
    best: Reserved | None = None
    offers = cluster.offers(job, ticket)
    for node in cluster.nodes:
        elsewhere = tuple(labelled_elsewhere(offers, node))
        free = forecast(
            *(cluster, node, stays.get(node, ()), job, ticket),
            elsewhere=elsewhere,
            now=now,
            latest=best.free if best else None,
        )
        if free is not None and (best is None or free < best.free):
            label = cluster.asked(node, ticket, job).request.seeks
            best = Reserved(job, ticket, node, free, label, elsewhere, now)
    return best


def delays(
    reserved: Reserved, cluster: Cluster, stays: Stays, job: QueuedJob, offer: Offer, *, begin: int
) -> bool:
    """Whether the reservation's job would fit later if another job took what it is offered. begin:
    when that one begins at the latest."""
    node, index = offer.place
    label = offer.request.seeks
    if node != reserved.node:  # there it could only take the label away
        return label is not None and label == reserved.label and label not in offer.device.labels
    stay = stay_of(job, begin, index, offer.request)
    after = cluster.only(node)
    take(after, node, stay)
    later = forecast(
        *(after, node, [*stays.get(node, ()), stay], reserved.job, reserved.ticket),
        elsewhere=reserved.elsewhere,
        now=reserved.now,
        latest=reserved.free,
    )
    return later is None
