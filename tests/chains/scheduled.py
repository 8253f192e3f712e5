"""A chain in the model of the GPU's own scheduler (tests/slices/model.py): its components have time
slices, and take turns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from leased.chains.search import Division
from leased.chains.shares import slices
from tests.slices.model import MADE_US, NEVER, Device, Job

ROOM = 4  # items that wait between two components


@dataclass
class Component(Job):
    """kernel_us: its work for an item. taken: how many items wait for it; None: it makes them."""

    alike = False
    waits: int | None = None
    after: Component | None = None

    def next_work(self, now: float) -> float:
        full = self.after is not None and self.after.waits == ROOM
        return NEVER if full or self.waits == 0 else super().next_work(now)

    def finished(self, now: float) -> None:
        super().finished(now)
        if self.waits is not None:
            self.waits -= 1
        if self.after is not None and self.after.waits is not None:
            self.after.waits += 1


@dataclass
class Scheduled:
    """work_us: of each component for an item."""

    work_us: Sequence[float]
    device: Device = field(init=False)

    def __post_init__(self) -> None:
        after: Component | None = None
        components: list[Component] = []
        for place, work_us in reversed(list(enumerate(self.work_us))):
            after = Component(work_us, waits=0 if place else None, after=after)
            components.insert(0, after)
        self.device = Device({str(place): each for place, each in enumerate(components)})

    def throughput(self, division: Division, seconds: float = 4.0) -> float:
        """Items a second of the last component, if its components have this division from now on;
        what is in flight now counts for none."""
        us = slices(dict(enumerate(division)))
        for place, job in enumerate(self.device.jobs.values()):
            job.slice_us = us.get(place) or MADE_US
        last = list(self.device.jobs.values())[-1]
        self.device.run(self.device.now + 1e6)
        began, before = self.device.now, last.kernels
        self.device.run(began + seconds * 1e6)
        return (last.kernels - before) * 1e6 / (self.device.now - began)
