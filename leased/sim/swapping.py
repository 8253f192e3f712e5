"""Swapped memory of a simulated job: it leaves for others, and comes back for the job's turn.

It moves in pieces, each way one after the other, and comes back as room appears.
"""

from __future__ import annotations

from leased.sim.jobs import MS, S
from leased.sim.parts import RESTORING, SHUT, Process

PIECE_NS = 25 * MS  # of the link's time


class Swapping:
    """out: bytes to give up; coming: bytes to bring in before its turn, by GPU. The first use of
    memory moves nothing: it has been allocated, and never left."""

    def __init__(self, client: Process):
        self.client = client
        self.memory = client.node.memory
        self.size = client.job.memory
        gpus = client.job.gpus
        self.out = dict.fromkeys(gpus, 0)
        self.coming = dict.fromkeys(gpus, 0)
        self.moves: dict[int, int] = {}  # what moves now
        self.new = dict.fromkeys(gpus, self.size)  # never used
        for gpu in gpus:
            self.memory[gpu].allocate(client.who)

    def resident(self, gpu: int) -> int:
        return self.memory[gpu].of(self.client.who)

    # -- orders -----------------------------------------------------------------------

    def restore(self) -> None:
        """The job has its lease, so all its memory must come back."""
        for gpu in self.out:
            self.out[gpu] = self.coming[gpu] = 0
        self.go_on()

    def evict(self, gpu: int, size: int) -> None:
        if not self.client.epoch:
            self.out[gpu] += size
            self.coming[gpu] = 0
            self.go_on()

    def preload(self, gpu: int, size: int) -> None:
        if not self.client.epoch:
            self.coming[gpu] = 0 if self.out[gpu] else size
            self.go_on()

    # -- pieces -----------------------------------------------------------------------

    def go_on(self) -> None:
        """Move what can be moved, and open the gate when all is there."""
        if self.client.gate == RESTORING:
            for gpu, new in self.new.items():
                self._use(gpu, new)
            if all(self.resident(gpu) >= self.size for gpu in self.out):
                self.client.restored()
        for gpu in self.out:
            if gpu not in self.moves and (step := self._step(gpu)):
                self._move(gpu, step)

    def _use(self, gpu: int, new: int) -> None:
        """Memory that was never used needs room, and nothing of it comes over the link."""
        size = min(new, self.memory[gpu].free())
        if size > 0 and gpu not in self.moves:
            self.new[gpu] -= size
            self.memory[gpu].fresh(self.client.who, size)
            self.client.tell_memory()

    def _step(self, gpu: int) -> int:
        """Bytes that come to the GPU next; below 0: that leave."""
        most = max(1, int(self.memory[gpu].gpu.link_bytes_s * PIECE_NS / S))
        lacking = self.size - self.new[gpu] - self.resident(gpu)
        room = max(0, self.memory[gpu].free())
        gate = self.client.gate
        if gate == RESTORING:
            return min(most, lacking, room)
        if gate != SHUT:
            return 0
        if self.out[gpu] and self.resident(gpu):
            return -min(most, self.out[gpu], self.resident(gpu))
        return min(most, self.coming[gpu], lacking, room)

    def _move(self, gpu: int, step: int) -> None:
        memory = self.memory[gpu]
        inward = step > 0
        memory.going[inward] += 1
        self.moves[gpu] = step
        speed = memory.gpu.link_bytes_s / memory.going[inward]

        def moved() -> None:
            memory.going[inward] -= 1
            del self.moves[gpu]
            self._moved(gpu, step)

        self.client.after(max(1, round(abs(step) / speed * S)), moved)

    def _moved(self, gpu: int, step: int) -> None:
        """A move has ended: count what was still to be moved and could be."""
        if self.client.gone:
            return
        now = self._step(gpu)
        size = min(step, now) if step > 0 else max(step, now)
        if size and (size > 0) == (step > 0):
            self.memory[gpu].swap(self.client.who, size)
            if size < 0:
                self.out[gpu] = max(0, self.out[gpu] + size)
                self.client.node.room_freed(gpu)
            elif self.client.gate == SHUT:
                self.coming[gpu] = max(0, self.coming[gpu] - size)
            self.client.tell_memory()
        self.go_on()
