"""What the placer decides about, and what it answers: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from leased.placement.api import Request
from leased.slurm.nodes_json import GpuNode
from leased.slurm.queue_json import QueuedJob

NOW = 0  # as a start: at once


@dataclass(frozen=True)
class Settings:
    """hold_s: for how long a job is put off at a time. settle_s: how long a job that was let start
    may take to do so. backoff_s: how long one that did not is not tried again, at most."""

    hold_s: int
    settle_s: int = 30
    backoff_s: int = 600
    say_s: int = 30  # between two changes of a job's reason


@dataclass(frozen=True)
class Ticket:
    """What the placer remembers of a job that has labels or a share.

    options: as --gpu-share takes them. begin: when its user lets it begin. until: the begin time
    that the job was put off to last; 0: it is not put off. node, gpu: where it is to run, once it
    is let start; "" and -1: it is not. bound: it is the placer that has bound it to the node.
    let_at: when it was let start. runs: it has begun. tries: how often it was let start and did
    not. retry_at: not again before. said_at: when its reason was written. free: its node is Slurm's
    choice alone. Times are seconds since 1970.
    """

    options: str
    request: Request
    user_id: int
    begin: int = 0
    until: int = 0
    node: str = ""
    gpu: int = -1
    bound: bool = False
    let_at: int = 0
    runs: bool = False
    tries: int = 0
    retry_at: int = 0
    said_at: int = 0
    free: bool = False


@dataclass(frozen=True)
class Update:
    """A change of a pending job; of a running one only its comments. job: as scontrol takes it.
    start: its new begin time, NOW for at once. node: the one that it has to run on; "": any.
    None: it stays as it is. why: for the journal."""

    job: str
    start: int | None = None
    node: str | None = None
    comment: str | None = None
    admin_comment: str | None = None
    why: str = ""

    @property
    def changes(self) -> bool:
        said = (self.start, self.node, self.comment, self.admin_comment)
        return any(value is not None for value in said)


@dataclass(frozen=True)
class View:
    """What Slurm says at a time (seconds since 1970)."""

    now: int
    jobs: tuple[QueuedJob, ...]
    nodes: tuple[GpuNode, ...]


# What a job asks of a GPU, from its options; None: they cannot be read, or ask for nothing.
Understand = Callable[[str], Request | None]
Tickets = Mapping[str, Ticket]
