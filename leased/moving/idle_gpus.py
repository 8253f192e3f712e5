"""Looks for jobs that should move to a GPU that is idle: what choice.py decides by, look by look.

The daemon uses it with its clock (admin/idle_moves.py), and the simulator with its own.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from leased.leasing.arbiter_view import DeviceView
from leased.moving.choice import REST_NS, Choice, DeviceSeen, choose

BEAT_S = 0.2
AGAIN_NS = 30_000_000_000  # before a job is tried again that was not touched
BUSY_NS = 30_000_000_000  # over which it is averaged how busy a GPU is


class Looked(NamedTuple):
    """A GPU. link: bytes a second. usable: its jobs have one GPU each, it has no fault and is not
    drained. still: jobs whose work stands still in mid-kernel."""

    device: DeviceView
    kind: str
    link: float
    usable: bool = True
    still: frozenset[int] = frozenset()


@dataclass
class IdleGpus:
    """turned: by device, for how long its jobs have taken turns as they do not fit together, less
    the time in which at most one of them wanted it (ns). busy: by device with jobs, in which part
    of the time one of them has held it or waited for it. tried: by job, when it was last moved by
    anybody (ns); so much earlier where it may be tried again sooner."""

    turned: dict[str, int] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    tried: dict[int, int] = field(default_factory=dict)
    looked: int = 0  # when (ns)

    def forget(self) -> None:
        """Nothing moves by itself any more."""
        self.turned.clear()
        self.busy.clear()

    def note(self, touched: Mapping[int, int], known: Container[int]) -> None:
        """touched: by job, when it last stood still for a move. known: the jobs that there are."""
        self.tried = {job: at for job, at in self.tried.items() if job in known}
        for job, at in touched.items():
            self.tried[job] = max(at, self.tried.get(job, at))

    def begins(self, now: int, job: int) -> None:
        """A move of the job begins. If it stays untouched it is soon tried again."""
        self.tried[job] = now - REST_NS + AGAIN_NS

    def look(self, now: int, gpus: Iterable[Looked]) -> list[DeviceSeen]:
        """The GPUs to choose between."""
        since = min(now - self.looked, round(2e9 * BEAT_S))
        self.looked = now
        seen = [self._seen(since, gpu) for gpu in gpus]
        return [one for one in seen if one is not None]

    def choose(
        self, now: int, seen: Iterable[DeviceSeen], may: Callable[[Choice], bool]
    ) -> Choice | None:
        """The move that is worth it now, if any. may: whether nothing else hinders it."""
        rested = {job: now - at for job, at in self.tried.items()}
        return choose(seen, rested, may)

    def _seen(self, since: int, gpu: Looked) -> DeviceSeen | None:
        """since: the last look, in ns."""
        device, uuid = gpu.device, gpu.device.state.uuid
        memory, wanted = device.memory(), frozenset(device.locks())
        turns = wanted if device.too_much else frozenset[int]()
        if device.too_much:
            more = since if len(turns) > 1 else -since
            self.turned[uuid] = max(0, self.turned.get(uuid, 0) + more)
        else:
            self.turned.pop(uuid, None)
        if memory:  # a job that has just begun may have everything still before it
            busy = self.busy.get(uuid, 1.0)
            self.busy[uuid] = busy + (bool(wanted) - busy) * since / BUSY_NS
        else:
            self.busy.pop(uuid, None)
        if not gpu.usable:
            return None
        return DeviceSeen(
            *(uuid, gpu.kind, device.residency.room),
            {job: has.bytes + has.fixed for job, has in memory.items()},
            {job: has.resident + has.fixed for job, has in memory.items()},
            turns,
            self.turned.get(uuid, 0),
            gpu.link,
            self.busy.get(uuid, 0.0),
            gpu.still,
        )
