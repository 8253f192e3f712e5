"""What happens on a node (events), and what is to be done there (actions)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from leased.across.messages import Message


@dataclass(frozen=True)
class OfJob:
    """What has to do with one job."""

    job: str


@dataclass(frozen=True)
class Joined(OfJob):
    """The job is on this node. nodes: all its nodes in one order, which all of them know; the first
    is its coordinator's. gpus: those that it has here, as bits."""

    nodes: tuple[str, ...]
    gpus: int


class Left(OfJob):
    """The job has ended on this node: none of its processes runs here any more."""


@dataclass(frozen=True)
class Wants(OfJob):
    """Whether a process of the job waits for its GPUs here."""

    wants: bool


@dataclass(frozen=True)
class Ready(OfJob):
    """Whether the job could have its GPUs here as soon as it is to Hold them: its turn among the
    jobs of this node has come. This stays so until it has run."""

    ready: bool


class Held(OfJob):
    """After Hold: no other job has the job's GPUs here any more."""


class Stopped(OfJob):
    """After Stop: no work of the job is under way here, or what is has been given up."""


class EndWanted(OfJob):
    """The job's quantum is over here while others wait, or it has nothing to do."""


@dataclass(frozen=True)
class Received:
    """A message of another node's daemon, whose name is proven."""

    node: str
    message: Message


@dataclass(frozen=True)
class Tick:
    """Only time has passed."""


Event = Union[Joined, Left, Wants, Ready, Held, Stopped, EndWanted, Received, Tick]


@dataclass(frozen=True)
class Send:
    """To the daemon of that node."""

    node: str
    message: Message


class Line(OfJob):
    """The job waits, so it is to have its turn among the jobs of this node. What is free meanwhile
    goes to others, who give it back when the job is to Hold it."""


class Hold(OfJob):
    """Take the job's GPUs back from others, and let nobody have them; answered by Held."""


class Run(OfJob):
    """The job runs on all its nodes, so it may run here."""


class Stop(OfJob):
    """The job must stop here, and nobody gets its GPUs yet; answered by Stopped."""


@dataclass(frozen=True)
class Free(OfJob):
    """Others may have the job's GPUs here. lined: the job has not run, and keeps its place."""

    lined: bool


@dataclass(frozen=True)
class Keep(OfJob):
    """Write down that these GPUs are promised to the job, before what follows is sent: the next
    daemon on this node must know it."""

    nodes: tuple[str, ...]
    gpus: int


class Forget(OfJob):
    """The promise is over."""


Action = Union[Send, Line, Hold, Run, Stop, Free, Keep, Forget]
