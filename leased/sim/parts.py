"""What the parts of a simulated process use of it, and what it uses of its node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leased.core.events import Event
from leased.sim.jobs import Job
from leased.sim.memory import GpuMemory
from leased.sim.processors import Processors
from leased.sim.timeline import Timeline

SHUT, RESTORING, OPEN, CLOSING = "shut", "restoring", "open", "closing"


class Node(Protocol):
    """What a process uses of the node that it runs on. memory: of each GPU."""

    timeline: Timeline
    processors: Processors
    memory: list[GpuMemory]

    def tell(self, event: Event) -> None:
        """Tell the arbiter of an event."""
        ...

    def room_freed(self, gpu: int) -> None:
        """Memory on the GPU has become free, for which a process may wait."""
        ...

    def ended(self, who: int) -> None:
        """The job has ended, and its figures are final."""
        ...


class Process(Protocol):
    """What the parts of a process use of it: of its gate, its lease (epoch; 0: it has none), and
    turn, which grows whenever what was planned for later is off."""

    node: Node
    who: int
    job: Job
    gate: str
    epoch: int
    turn: int
    gone: bool

    @property
    def is_idle(self) -> bool:
        """The gate is open, and the job does not want to compute."""
        ...

    def later(self, ns: int, act: Callable[[], None]) -> None:
        """Call `act` after so many ns, unless the process has changed its mind by then."""
        ...

    def after(self, ns: int, act: Callable[[], None]) -> None:
        """Call `act` after so many ns, whatever happens until then."""
        ...

    def release(self) -> None:
        """Give the lease back."""
        ...

    def restored(self) -> None:
        """All memory that the job needs is on the GPU."""
        ...

    def tell_memory(self) -> None:
        """Report the job's memory and, if it swaps, how much of it is on the GPU."""
        ...
