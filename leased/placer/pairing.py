"""Beside which online job, or on which idle GPU, each offline job goes that can start now.

Those that have waited longest, as far as it is known what their earlier runs did, are matched with
the GPUs that they could get (leased/matching). A GPU without jobs is worth most, since nobody takes
anything from the job there. What is not matched is placed as any other job.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from leased.core.classes import OFFLINE, ONLINE
from leased.matching.assign import is_possible, match, worth
from leased.matching.profile import Kind, Profile
from leased.placement import kubeshare
from leased.placement.api import Placed
from leased.placer.cluster import Offer, Place
from leased.placer.keeping import Pending
from leased.placer.model import Ticket
from leased.placer.placing import labels
from leased.placer.turn import Turn, unbound
from leased.slurm.queue_json import QueuedJob

JOBS = 256  # that are matched in one turn
PLACES = 4096


class Row(NamedTuple):
    """A job, or a task of an array, that may start. label: as Slurm's commands take it."""

    label: str
    job: QueuedJob
    ticket: Ticket
    profile: Profile


def pairs(turn: Turn, pending: Pending) -> dict[str, Place]:
    """By label. pending: jobs for which only a place is missing."""
    if turn.settings.model is None or not is_possible():
        return {}
    rows = list(islice(_rows(turn, pending), JOBS))
    known: dict[tuple[str, Profile], dict[Place, float]] = {}
    worths = []
    for row in rows:
        key = row.job.key, row.profile
        if key not in known:
            known[key] = _worths(turn, row)
        worths.append(known[key])
    places = sorted({place for one in worths for place in one})[:PLACES]
    found = match([[one.get(place, 0.0) for place in places] for one in worths])
    return {rows[row].label: places[column] for row, column in found.items()}


def kind_of(job: QueuedJob) -> Kind:
    return Kind(job.user_id, job.name)


def _rows(turn: Turn, pending: Pending) -> Iterator[Row]:
    for job, ticket in pending:
        profile = turn.view.profiles.get(kind_of(job))
        request = ticket.request
        if profile is not None and request.job_class != ONLINE and request.seeks is None:
            for label in labels(turn, job):
                yield Row(label, job, ticket, profile)


def _worths(turn: Turn, row: Row) -> dict[Place, float]:
    """What each GPU is worth that the job could get, and of which it is known what is there. None
    is where the job is not offline: a node may give it that class."""
    model = turn.settings.model
    assert model is not None
    found = {}
    for offer in turn.offers(unbound(row.job, row.ticket), row.ticket):
        offline = offer.request.job_class == OFFLINE
        if not (offline and isinstance(kubeshare.place(offer.request, [offer.device]), Placed)):
            continue
        online = _online(turn, offer)
        if offer.device.is_idle:
            found[offer.place] = 1.0
        elif online is not None:
            found[offer.place] = worth(model, online, row.profile)
    return found


def _online(turn: Turn, offer: Offer) -> Profile | None:
    """Of the one job on the GPU, if that is online and it is known what it does."""
    classes = [tenant.job_class for tenant in offer.device.tenants]
    there = turn.there.get(offer.place, [])
    if classes != [ONLINE] or len(there) != 1:
        return None
    return turn.view.profiles.get(kind_of(there[0]))
