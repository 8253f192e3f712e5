"""What a simulated process uses of its node."""

from __future__ import annotations

from typing import Protocol

from leased.core.events import Event
from leased.sim.memory import GpuMemory
from leased.sim.processors import Processors
from leased.sim.timeline import Timeline


class Node(Protocol):
    """memory: of each GPU."""

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


def name_of(gpu: int) -> str:
    """The GPU's name in the arbiter."""
    return f"GPU-{gpu}"
