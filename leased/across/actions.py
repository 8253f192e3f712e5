"""What happens on a node (events), and what is to be done there (actions)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from leased.across.messages import Message


@dataclass(frozen=True)
class Joined:
    """The job is on this node. nodes: all its nodes in one order, which all of them know; the first
    is its coordinator's. gpus: those that it has here, as bits."""

    job: str
    nodes: tuple[str, ...]
    gpus: int


@dataclass(frozen=True)
class Left:
    """The job has ended on this node: none of its processes runs here any more."""

    job: str


@dataclass(frozen=True)
class Wants:
    """Whether a process of the job waits for its GPUs here."""

    job: str
    wants: bool


@dataclass(frozen=True)
class Ready:
    """Whether the job could have its GPUs here as soon as it is to Hold them: its turn among the
    jobs of this node has come. This stays so until it has run."""

    job: str
    ready: bool


@dataclass(frozen=True)
class Held:
    """After Hold: no other job has the job's GPUs here any more."""

    job: str


@dataclass(frozen=True)
class Stopped:
    """After Stop: no work of the job is under way here, or what is has been given up."""

    job: str


@dataclass(frozen=True)
class EndWanted:
    """The job's quantum is over here while others wait, or it has nothing to do."""

    job: str


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


@dataclass(frozen=True)
class Line:
    """The job waits, so it is to have its turn among the jobs of this node. What is free meanwhile
    goes to others, who give it back when the job is to Hold it."""

    job: str


@dataclass(frozen=True)
class Hold:
    """Take the job's GPUs back from others, and let nobody have them; answered by Held."""

    job: str


@dataclass(frozen=True)
class Run:
    """The job runs on all its nodes, so it may run here."""

    job: str


@dataclass(frozen=True)
class Stop:
    """The job must stop here, and nobody gets its GPUs yet; answered by Stopped."""

    job: str


@dataclass(frozen=True)
class Free:
    """Others may have the job's GPUs here. lined: the job has not run, and keeps its place."""

    job: str
    lined: bool


@dataclass(frozen=True)
class Keep:
    """Write down that these GPUs are promised to the job, before what follows is sent: the next
    daemon on this node must know it."""

    job: str
    nodes: tuple[str, ...]
    gpus: int


@dataclass(frozen=True)
class Forget:
    """The promise is over."""

    job: str


Action = Union[Send, Line, Hold, Run, Stop, Free, Keep, Forget]
