"""Swapped memory of a simulated job: it leaves for others, and comes back for the job's turn.

It moves in pieces, each way one after the other, and comes back as room appears.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Protocol

from leased.core.events import Event, MemoryChanged
from leased.sim.jobs import MS, Job, S, name_of
from leased.sim.lease import RESTORING, Lease
from leased.sim.memory import GpuMemory
from leased.sim.processors import Processors
from leased.sim.timeline import Timeline

PIECE_NS = 25 * MS  # of the link's time


class Node(Protocol):
    """What a simulated process uses of its node. memory: of each GPU."""

    timeline: Timeline
    processors: Processors
    memory: list[GpuMemory]

    def tell(self, event: Event) -> None:
        """Tell the arbiter of an event."""

    def room_freed(self, gpu: int) -> None:
        """Memory on the GPU has become free, for which a process may wait."""

    def ended(self, who: int) -> None:
        """The job has ended, and its figures are final."""


class Swapping(Lease):
    """The memory of a process, by GPU. moves: what moves now. new: what was never used: its first
    use moves nothing. gone: the job has ended."""

    def __init__(self, node: Node, who: int, job: Job):
        super().__init__(job.gpus, swaps=job.swaps)
        self.node = node
        self.who = who
        self.job = job
        self.gone = False
        self.moves: dict[int, int] = {}
        self.new = dict.fromkeys(job.gpus, job.memory)
        if self.swaps:
            for gpu in job.gpus:
                node.memory[gpu].allocate(who)

    def arrive(self, job: Job) -> None:
        """It has moved, and has nothing on the GPUs that it has now, and no orders."""
        self.job = job
        self.new = dict(zip(job.gpus, self.new.values()))
        self.out, self.coming = dict.fromkeys(job.gpus, 0), dict.fromkeys(job.gpus, 0)
        for gpu in job.gpus:
            self.node.memory[gpu].allocate(self.who)

    def after(self, ns: int, act: Callable[[], None]) -> None:
        self.node.timeline.after(ns, act)

    def there(self, device: int) -> int:
        return self.node.memory[device].of(self.who)

    def away(self, device: int) -> int:
        return self.job.memory - self.new[device] - self.there(device)

    def room(self, device: int) -> int:
        return max(0, self.node.memory[device].free())

    def piece(self, device: int) -> int:
        return max(1, int(self.node.memory[device].gpu.link_bytes_s * PIECE_NS / S))

    def lacks(self) -> bool:
        return super().lacks() or (self.swaps and any(self.new.values()))

    def go_on(self) -> None:
        if self.swaps and self.gate == RESTORING:
            for gpu in self.new:
                self._use(gpu)
        super().go_on()

    def _use(self, gpu: int) -> None:
        """Memory that was never used needs room, and nothing of it comes over the link."""
        size = min(self.new[gpu], self.room(gpu))
        if size and gpu not in self.moves:
            self.new[gpu] -= size
            self.node.memory[gpu].fresh(self.who, size)
            self.tell_memory()

    def move(self) -> None:
        for gpu in self.out:
            if gpu not in self.moves and (step := self.step(gpu)):
                self._begin(gpu, step)

    def _begin(self, gpu: int, step: int) -> None:
        memory = self.node.memory[gpu]
        inward = step > 0
        memory.going[inward] += 1
        self.moves[gpu] = step
        speed = memory.gpu.link_bytes_s / memory.going[inward]
        self.after(max(1, round(abs(step) / speed * S)), functools.partial(self._end, gpu, step))

    def _end(self, gpu: int, step: int) -> None:
        """A move has ended: count what was still to be moved and could be."""
        memory = self.node.memory[gpu]
        memory.going[step > 0] -= 1
        del self.moves[gpu]
        if self.gone:
            return
        now = self.step(gpu)
        size = min(step, now) if step > 0 else max(step, now)
        if size and (size > 0) == (step > 0):
            memory.swap(self.who, size)
            self.moved(gpu, size)
            if size < 0:
                self.node.room_freed(gpu)
            self.tell_memory()
        self.go_on()

    def tell_memory(self) -> None:
        """Report the job's memory and, if it swaps, how much of it is on the GPU."""
        for gpu in self.job.gpus:
            there = self.there(gpu) if self.swaps else None
            self.node.tell(MemoryChanged(self.who, name_of(gpu), self.job.memory, 0, there))
