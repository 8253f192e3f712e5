"""The memory that is really on a GPU, and what really moves, whatever the arbiter believes."""

from __future__ import annotations

from dataclasses import dataclass, field

from leased.sim.jobs import Gpu, S


@dataclass
class GpuMemory:
    """resident: bytes by job; who used the GPU last comes last. swapped: which of the jobs move
    theirs themselves. touched: who has used its memory before: until then nothing comes in.
    moved: bytes that went over the link, both ways, by job for whom. going: how many jobs' memory
    moves now, by direction (True: to the GPU)."""

    gpu: Gpu
    resident: dict[int, int] = field(default_factory=dict)
    swapped: set[int] = field(default_factory=set)
    touched: set[int] = field(default_factory=set)
    moved: dict[int, int] = field(default_factory=dict)
    going: dict[bool, int] = field(default_factory=lambda: {True: 0, False: 0})

    def of(self, who: int) -> int:
        """Bytes of a job that are on the GPU."""
        return self.resident.get(who, 0)

    def page_in(self, who: int, size: int) -> int:
        """A job with managed memory uses the GPU: all of it comes in, and others lose what there
        is no room for. Returns how many ns that takes: both directions at once."""
        there = self.resident.pop(who, 0)
        room = self.gpu.memory - sum(self.of(other) for other in self.swapped)
        size = max(0, min(size, room))
        came = size - there if who in self.touched else 0
        self.touched.add(who)
        self.resident[who] = size
        left = self._make_room(who)
        self._count(who, came + left)
        return round(max(came, left) / self.gpu.paging_bytes_s * S)

    def free(self) -> int:
        """Bytes for swapped memory; managed memory makes room by itself."""
        return self.gpu.memory - sum(self.of(other) for other in self.swapped)

    def swap(self, who: int, size: int) -> None:
        """So many bytes of a job that swaps have come; below 0: have left."""
        self.resident[who] = self.resident.pop(who, 0) + size
        self._count(who, abs(size) + self._make_room(who))

    def allocate(self, who: int) -> None:
        """The job swaps, and has no memory on the GPU yet."""
        self.swapped.add(who)
        self.resident[who] = 0

    def fresh(self, who: int, size: int) -> None:
        """Memory that was never used is there at once."""
        self.touched.add(who)
        self.resident[who] = self.resident.pop(who, 0) + size
        self._count(who, self._make_room(who))

    def forget(self, who: int) -> None:
        self.resident.pop(who, None)
        self.swapped.discard(who)

    def _make_room(self, who: int) -> int:
        """Evict managed memory of others. Returns the bytes."""
        lost = 0
        more = sum(self.resident.values()) - self.gpu.memory
        for other in list(self.resident):
            if more <= 0:
                break
            if other != who and other not in self.swapped:
                part = min(more, self.resident[other])
                self.resident[other] -= part
                more -= part
                lost += part
        return lost

    def _count(self, who: int, size: int) -> None:
        if size:
            self.moved[who] = self.moved.get(who, 0) + size
