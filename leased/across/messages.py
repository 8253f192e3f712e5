"""What the daemons of a job on several nodes tell each other. Each message says all of a state, so
it does no harm if it is lost or comes twice, and an outdated one is known by its numbers."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Union

# The highest stamp. Where a broken daemon has said it, what follows has it too: jobs with equal
# stamps have an order still, by their names.
LAST_STAMP = (1 << 62) - 1
LAST_EPOCH = (1 << 62) - 1  # that a coordinator is told of: what follows it can still be said


class Phase(IntEnum):
    """What the members are to do. REST: others may have their GPUs. STOP: stop, and keep them."""

    REST = 0
    HOLD = 1
    RUN = 2
    STOP = 3


class State(IntEnum):
    """Of a member. HOLDING: its GPUs are being taken back from others. HELD: no other job can have
    them, and the member does not run. STOPPED: as HELD, after it ran or might have."""

    REST = 0
    HOLDING = 1
    HELD = 2
    RUNNING = 3
    STOPPING = 4
    STOPPED = 5


class Order(NamedTuple):
    """From a job's coordinator to one member.

    epoch: grows with each attempt to run; round: grows within an epoch. vote: the member's vote
    of the last complete round, on which it may run; 0: none. stamp: the job's place among all jobs
    on several nodes, the lowest is first; 0: it does not wait.
    """

    job: str
    epoch: int
    round: int
    phase: Phase
    vote: int = 0
    stamp: int = 0


class Report(NamedTuple):
    """From a member to its job's coordinator.

    epoch, round: of the last order that it has followed. vote: its own clock, in ns, when it last
    promised to keep its GPUs; 0: it has not. wants: a process of it waits for its GPUs. ready: it
    """

    job: str
    epoch: int
    round: int
    state: State
    vote: int = 0
    wants: bool = False
    ready: bool = False
    ends: bool = False
    yields: bool = False
    latest: int = 0


Message = Union[Order, Report]
