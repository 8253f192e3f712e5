"""What is known and decided in one turn of the placer's loop."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Optional

from leased.placer import marks
from leased.placer.cluster import Cluster, Offer, Place
from leased.placer.forecast import Stay, stay_of, take
from leased.placer.model import NOW, Settings, Ticket, Tickets, Understand, Update, View
from leased.placer.reserving import KEPT, Reserved, delays
from leased.slurm.queue_json import QueuedJob

Change = tuple[Update, str, Optional[Ticket]]  # the key and ticket to be remembered once it is made


@dataclass
class Turn:
    """known: the tickets of the last turn. tickets: those of this turn, if no change is made.
    cluster: with the jobs that have been placed so far. empty: the cluster without jobs. places:
    node and GPU of each device, by its name. reserved: for whom a node's GPU is kept. stays: what
    jobs have of each node; of those that run only if somebody has waited for long. closed: nodes
    that a job has got so and where it has not begun: jobs that Slurm would start before it would
    take its place. there: the jobs of each GPU. pairs: the GPU that an offline job or a task had
    best, by its label.

    Changes, each list in the order in which they are to be made: urgent: those that cannot wait;
    starts: of jobs that may start; words: of comments only.

    said: by kind of job, why it fits nowhere now. tries: by user, how many requests were tried.
    waiting: by user, how many jobs wait.
    """

    view: View
    settings: Settings
    understand: Understand
    known: Tickets
    cluster: Cluster
    empty: Cluster
    places: dict[str, Place]
    stays: dict[str, list[Stay]] = field(default_factory=dict)
    reserved: Reserved | None = None
    closed: set[str] = field(default_factory=set)
    tickets: dict[str, Ticket] = field(default_factory=dict)
    urgent: list[Change] = field(default_factory=list)
    starts: list[Change] = field(default_factory=list)
    words: list[Change] = field(default_factory=list)
    there: dict[Place, list[QueuedJob]] = field(default_factory=dict)
    pairs: dict[str, Place] = field(default_factory=dict)
    said: dict[tuple[object, ...], str] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, view: View, known: Tickets, settings: Settings, understand: Understand) -> Turn:
        cluster = Cluster.of(view.nodes, view.rules, view.closed)
        return cls(view, settings, understand, known, cluster, cluster.emptied(), cluster.places())

    def ticket(self, job: QueuedJob) -> Ticket | None:
        return ticket_of(job, self.known, self.understand)

    def waits_to_start(self, job: QueuedJob, ticket: Ticket) -> bool:
        """Whether it may start already, and Slurm may still start it. The clock may be set back."""
        late = abs(self.view.now - ticket.let_at) > self.settings.settle_s
        return bool(ticket.let_at) and not ticket.runs and not job.held and not late

    def is_long(self, ticket: Ticket) -> bool:
        """Whether the job has fitted nowhere for so long that a GPU is kept for it."""
        patience = self.settings.reserve_s
        return patience > 0 and 0 < ticket.since <= self.view.now - patience

    def take(self, ticket: Ticket, job: QueuedJob) -> None:
        """The job has got its place, and will begin there."""
        if ticket.gpu >= 0:
            request = self.cluster.asked(ticket.node, ticket, job).request
            stay = stay_of(job, self.begin(ticket.let_at), ticket.gpu, request)
            take(self.cluster, ticket.node, stay)
            self.there.setdefault((ticket.node, ticket.gpu), []).append(job)
            self.stays.setdefault(ticket.node, []).append(stay)

    def begin(self, let_at: int) -> int:
        """When a job that was allowed to start then begins at the latest."""
        return let_at + self.settings.settle_s

    def offers(self, job: QueuedJob, ticket: Ticket) -> list[Offer]:
        """What the job could get now, and what is kept from it for another one."""
        return [
            offer._replace(device=replace(offer.device, shut=KEPT))
            if not offer.device.shut and self._is_kept(job, offer)
            else offer
            for offer in self.cluster.offers(job, ticket)
        ]

    def _is_kept(self, job: QueuedJob, offer: Offer) -> bool:
        if offer.place[0] in self.closed:
            return True
        kept = self.reserved
        if kept is None or kept.job.key == job.key:
            return False
        begin = self.begin(self.view.now)
        return delays(kept, self.cluster, self.stays, job, offer, begin=begin)


def ticket_of(job: QueuedJob, tickets: Tickets, understand: Understand) -> Ticket | None:
    """What is remembered of the job or of its array, or else what its mark says."""
    known = tickets.get(job.key) or tickets.get(str(job.array_id))
    if known is not None and known.user_id == job.user_id:
        return known
    mark = marks.mark_of(job.admin_comment)
    request = understand(mark.options) if mark and job.shards else None
    if mark is None or request is None:
        return None
    mine = request.of_user(job.user_id)
    return Ticket(mark.options, mine, job.user_id, begin=mark.begin, until=mark.until)


def is_bound(job: QueuedJob, ticket: Ticket) -> bool:
    """Whether the placer, and not its user, has bound the job to one node."""
    return ticket.bound and job.required == ticket.node


def unbound(job: QueuedJob, ticket: Ticket) -> QueuedJob:
    """The job as its user has submitted it."""
    return replace(job, required="") if is_bound(job, ticket) else job


def changed(before: str, after: str) -> str | None:
    return None if before == after or marks.UNREADABLE in before else after


def cleared(
    job: QueuedJob, why: str, *, label: str = "", start: int | None = None, node: str | None = None
) -> Update:
    """A change that also takes out of the job's comments what the placer and gpu_share.lua wrote.
    label: of one task of it."""
    comment = changed(job.comment, marks.without_reason(job.comment))
    admin_comment = changed(job.admin_comment, marks.without_mark(job.admin_comment))
    return Update(label or job.label, start, node, comment, admin_comment, why)


def start_at(begin: int, now: int) -> int:
    """The begin time as Update.start: NOW if it is over."""
    return begin if begin > now else NOW
