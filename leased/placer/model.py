"""What the placer decides about, and what it answers: plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from leased.config.job_sets import Owner
from leased.matching.model import Model
from leased.matching.profile import Kind, Profile
from leased.placement.api import Request
from leased.slurm.nodes_json import GpuNode
from leased.slurm.queue_json import QueuedJob

NOW = 0  # as Update.start: begin at once


class Asked(NamedTuple):
    """What a job asks of a GPU of a node. refusal: why the node refuses the job, with the remedy;
    "": it does not. together: by number of a GPU that is shared by MPS, whose jobs may be there at
    once."""

    request: Request
    refusal: str = ""
    together: Mapping[int, str] = {}


# What a job with such options, of such an owner, asks of a GPU of a node.
Rules = Callable[[str, Owner], Asked]


@dataclass(frozen=True)
class Settings:
    """hold_s: for how long a job is put off at a time. settle_s: how long Slurm may take to start a
    job that was allowed to start. backoff_s: the longest pause before such a job is tried again."""

    hold_s: int
    settle_s: int = 30
    backoff_s: int = 600
    model: Model | None = None  # by which offline jobs are matched; None: they are not
    reserve_s: int = 0  # a job that fits nowhere for longer gets a reservation; 0: none does


@dataclass(frozen=True)
class Ticket:
    """What the placer remembers of a job that has labels or a share.

    options: as --gpu-share takes them. begin: the begin time that its user has set. until: the
    begin time to which the placer has put it off; 0: it is not put off. node, gpu: where it is to
    run once it may start; "" and -1: it may not yet. bound: the placer has bound it to the node.
    let_at: when it was allowed to start. runs: it has begun. tries: how often it was allowed to
    start and did not. retry_at: when to try again. said_at: when its reason was written. free:
    Slurm alone chooses its node. since: since when it has been tried and has fitted nowhere; 0: it
    has not been. kept_at: since when a GPU is kept for it; 0: none is. promised: when it will fit
    there, as was known first; 0: nobody knows. Times are seconds since 1970.
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
    since: int = 0
    kept_at: int = 0
    promised: int = 0


@dataclass(frozen=True)
class Update:
    """A change of a pending job, or of the comments of a running one. A field that is None stays as
    it is. job: as scontrol takes it. start: the new begin time, or NOW. node: the node on which it
    has to run; "": any. why: for the journal."""

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
    """What Slurm says now. now: seconds since 1970. rules: of the nodes that say theirs. closed:
    partitions that start no jobs. profiles: what earlier runs of jobs did."""

    now: int
    jobs: tuple[QueuedJob, ...]
    nodes: tuple[GpuNode, ...]
    rules: Mapping[str, Rules] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    profiles: Mapping[Kind, Profile] = field(default_factory=dict)


# What a job asks of a GPU, from its options; None: they cannot be read, or ask for nothing.
Understand = Callable[[str], Optional[Request]]
Tickets = Mapping[str, Ticket]
