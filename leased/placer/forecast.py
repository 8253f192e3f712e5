"""When a job that waits will fit on a node, if no further job comes there and all that are there
end when their time limits say."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from leased.placement.api import Placed, Request
from leased.placer.choosing import ELSEWHERE, choose
from leased.placer.cluster import Cluster, Offer
from leased.placer.model import Ticket
from leased.slurm.hostlists import expand
from leased.slurm.queue_json import QueuedJob

ENDLESS = math.inf


@dataclass(frozen=True)
class Stay:
    """What a job has of a node until it ends. end: when that is at the latest, seconds since 1970;
    ENDLESS: nobody knows. given: its shards by GPU; None: the whole GPU. request: what it asks of
    each of those GPUs. memory: MiB."""

    end: float
    given: Mapping[int, int | None]
    request: Request
    cpus: int = 0
    memory: int = 0


class Free(NamedTuple):
    """When a job fits. at: seconds since 1970; ENDLESS: once `endless` of the jobs that end nobody
    knows when have ended. The smaller one is sooner."""

    at: float
    endless: int


def forecast(
    cluster: Cluster,
    node: str,
    stays: Sequence[Stay],
    job: QueuedJob,
    ticket: Ticket,
    *,
    elsewhere: Sequence[Offer],
    now: int,
    latest: Free | None = None,
) -> Free | None:
    """When the job fits on the node; None: never, or later than `latest`.

    stays: what jobs have of the node. elsewhere: GPUs of other nodes that have the job's affinity
    label.
    """
    if cluster.exclusion(job, node) or cluster.asked(node, ticket, job).refusal:
        return None
    after = cluster.only(node)
    at, endless = float(now), 0
    for ended in itertools.chain([()], _ends(stays, now)):
        for stay in ended:
            give_back(after, node, stay)
            at = max(at, stay.end)
            endless += stay.end == ENDLESS
        free = Free(at, endless)
        if latest is not None and free > latest:
            return None
        answer = choose(ticket, [*after.offers(job, ticket), *elsewhere])
        if isinstance(answer, Placed):
            return free
    return None


def _ends(stays: Iterable[Stay], now: int) -> Iterable[tuple[Stay, ...]]:
    """What ends together, in the order of time; what has no known end, one by one at last. What
    should have ended does so now."""
    known = sorted((max(now, stay.end), n, stay) for n, stay in enumerate(stays))
    for at, together in itertools.groupby(known, key=lambda one: one[0]):
        if at != ENDLESS:
            yield tuple(stay for _, _, stay in together)
    yield from ((stay,) for stay in stays if stay.end == ENDLESS)


def stay_of(job: QueuedJob, begin: int, gpu: int, request: Request) -> Stay:
    """What a job that begins then, at the latest, will have of its node."""
    end = begin + job.limit_s if job.limit_s else ENDLESS
    return Stay(end, {gpu: job.shards}, request, job.cpus, job.memory)


def stays_of(cluster: Cluster, job: QueuedJob, ticket: Ticket | None) -> list[tuple[str, Stay]]:
    """What a job that runs has of each of its nodes. What it has of several it has evenly."""
    nodes = _names(job.nodes)
    end = job.end or ENDLESS
    cpus, memory = (amount // max(1, len(nodes)) for amount in (job.cpus, job.memory))
    given = job.given if len(nodes) == 1 else {}
    found = []
    for node in nodes:
        whole = None in given.values()
        request = Request() if whole else cluster.asked(node, ticket, job).request
        found.append((node, Stay(end, given, request, cpus, memory)))
    return found


def _names(text: str) -> list[str]:
    """Of nodes. A list that cannot be read names none."""
    try:
        return expand(text) if text else []
    except ValueError:
        return []


def take(cluster: Cluster, node: str, stay: Stay) -> None:
    """The job begins."""
    for index, shards in stay.given.items():
        cluster.take(node, index, shards, stay.request)
    cluster.cpus[node] = cluster.cpus.get(node, 0) - stay.cpus
    cluster.memory[node] = cluster.memory.get(node, 0) - stay.memory


def give_back(cluster: Cluster, node: str, stay: Stay) -> None:
    """The job ends. GPUs that are not known have been ignored when it took them."""
    gpus = cluster.by_node[node]
    for index, shards in stay.given.items():
        if 0 <= index < len(gpus):
            gpus[index].give_back(shards, stay.request)
    cluster.cpus[node] += stay.cpus
    cluster.memory[node] += stay.memory


def labelled_elsewhere(offers: Iterable[Offer], node: str) -> list[Offer]:
    """Those on other nodes that have the label that the job seeks, as ones that it cannot get."""
    return [
        offer._replace(device=replace(offer.device, shut=offer.device.shut or ELSEWHERE))
        for offer in offers
        if offer.place[0] != node and offer.request.seeks in offer.device.labels
    ]
