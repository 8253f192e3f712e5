"""What is known and decided in one turn of the placer's loop."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.placer import marks
from leased.placer.cluster import Cluster, Place
from leased.placer.model import NOW, Settings, Ticket, Tickets, Understand, Update, View
from leased.slurm.queue_json import QueuedJob

Change = tuple[Update, str, Ticket | None]  # what is remembered under that key once it is done


@dataclass
class Turn:
    """known: what was remembered before. tickets: what is now, without any change having been made.
    cluster: with the jobs that are there so far; empty: with none; places: its devices by name.

    urgent: changes that would be too late later; starts: jobs that may start; words: comments
    alone. Each list is in the order in which it is to be done. said: why jobs of a kind fit
    nowhere now.
    tries, waiting: by user, what was tried and how many wait.
    """

    view: View
    settings: Settings
    understand: Understand
    known: Tickets
    cluster: Cluster
    empty: Cluster
    places: dict[str, Place]
    tickets: dict[str, Ticket] = field(default_factory=dict)
    urgent: list[Change] = field(default_factory=list)
    starts: list[Change] = field(default_factory=list)
    words: list[Change] = field(default_factory=list)
    said: dict[tuple[object, ...], str] = field(default_factory=dict)
    tries: dict[int, int] = field(default_factory=dict)
    waiting: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, view: View, known: Tickets, settings: Settings, understand: Understand) -> Turn:
        cluster = Cluster.of(view.nodes)
        return cls(view, settings, understand, known, cluster, cluster.emptied(), cluster.places())

    def ticket(self, job: QueuedJob) -> Ticket | None:
        return ticket_of(job, self.known, self.understand)

    def waits_to_start(self, job: QueuedJob, ticket: Ticket) -> bool:
        """It has been let start, and Slurm may do so at any time."""
        late = self.view.now - ticket.let_at > self.settings.settle_s
        return bool(ticket.let_at) and not ticket.runs and not job.held and not late

    def take(self, ticket: Ticket, job: QueuedJob) -> None:
        if ticket.gpu >= 0:
            self.cluster.take(ticket.node, ticket.gpu, job.shards, ticket.request)
            self.cluster.cpus[ticket.node] = self.cluster.cpus.get(ticket.node, 0) - job.cpus


def ticket_of(job: QueuedJob, tickets: Tickets, understand: Understand) -> Ticket | None:
    """What is remembered of the job, or of its array, or what its mark says."""
    known = tickets.get(job.key) or tickets.get(str(job.array_id))
    if known is not None and known.user_id == job.user_id:
        return known
    mark = marks.mark_of(job.admin_comment)
    request = understand(mark.options) if mark and job.shards else None
    if mark is None or request is None:
        return None
    return Ticket(mark.options, request, job.user_id, begin=mark.begin, until=mark.until)


def is_bound(job: QueuedJob, ticket: Ticket) -> bool:
    """By the placer to one node, and not by its user."""
    return ticket.bound and job.required == ticket.node


def changed(before: str, after: str) -> str | None:
    return None if before == after or marks.UNREADABLE in before else after


def start_at(begin: int, now: int) -> int:
    """As a start of an update."""
    return begin if begin > now else NOW
