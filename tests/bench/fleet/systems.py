"""Who gets which GPU, in each of the systems that are compared.

- Exclusive: each task has whole GPUs. The one that came first goes first.
- TimeSharing: a task has the part of a GPU that it asks for, and its memory. Best fit; a task that
  fits may overtake one that does not.
- BestFit: online tasks are placed as in TimeSharing. Each GPU takes one offline task, whatever the
  online tasks there have asked for, as it gets what they leave: an idle GPU first, then by best fit
  of memory. It is offered the most memory that the online tasks have in the day.
- Matched: as BestFit, but which of the tasks that have waited longest goes to which of the free
  GPUs is matched by the predictor. It knows of an online task its program and its mean load and
  most memory of the day, as if yesterday had been the same. As many are matched at once as in a
  turn of gpu-lease-placer, of which there are several in a minute.

Tasks that wait are looked at once in a step, in the order in which they came.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from leased.matching.assign import match, worth
from leased.matching.model import Model
from leased.matching.profile import Profile
from leased.placement import kubeshare
from leased.placement.api import Device, Placed, Request
from leased.placer.pairing import JOBS, PLACES
from tests.bench.fleet.places import Places
from tests.bench.fleet.tasks import Offline, Online
from tests.bench.fleet.trace import Floats, Ints

Start = tuple[int, int]  # of an offline task, and the GPU that it gets


class Exclusive:
    """capacity: bytes of a GPU. known: what offline tasks ask for, by part of a GPU."""

    def __init__(self, nodes: Sequence[int], capacity: int):
        self.places = Places(nodes, capacity)
        self.known: dict[float, Request] = {}

    def know(self, tasks: Sequence[Offline]) -> None:
        """The offline tasks that there will be. The part of a GPU that one asks for says how much
        memory it has."""
        self.known = {task.part: self.request(task.part, task.memory) for task in tasks}

    def request(self, part: float, memory: int) -> Request:
        """What a task asks of a GPU."""
        return Request(1.0)

    def place_online(self, tasks: Sequence[Online], peaks: Sequence[int]) -> list[list[int]]:
        """The GPUs of each online task. Those of several go first, since they need a node's. peaks:
        of each, the most memory that it has on a GPU. SystemExit: there are not enough GPUs."""
        found: dict[int, list[int] | None] = {}
        for n in sorted(range(len(tasks)), key=lambda n: -tasks[n].gpus):
            request = self.request(tasks[n].part, peaks[n])
            if tasks[n].gpus > 1:
                found[n] = self.places.place_gang(request, tasks[n].gpus)
            else:
                gpu = self.places.place(request)
                found[n] = None if gpu is None else [gpu]
        if None in found.values():
            raise SystemExit("the fleet has not enough GPUs for the trace's online tasks")
        return [found[n] or [] for n in range(len(tasks))]

    def start(self, waiting: Sequence[int], tasks: Sequence[Offline]) -> Iterator[Start]:
        """waiting: numbers of tasks, the one first that has waited longest."""
        full: set[Request] = set()
        for who in waiting:
            request = self.known[tasks[who].part]
            if request in full:
                continue
            gpu = self.places.place(request)
            if gpu is None:
                full.add(request)
                if len(full) == len(set(self.known.values())):
                    break
            else:
                yield who, gpu

    def end(self, gpu: int, task: Offline) -> None:
        self.places.leave(gpu, self.known[task.part])


class TimeSharing(Exclusive):
    def request(self, part: float, memory: int) -> Request:
        return Request(part, memory)


class Beside:
    """GPUs with online tasks that may take an offline one. memory: what each has, bytes."""

    def __init__(self, memory: Mapping[int, int], capacity: int):
        self.capacity = capacity
        self.alike: dict[int, list[int]] = {}
        for gpu, used in memory.items():
            self.alike.setdefault(used, []).append(gpu)

    def take(self, memory: int) -> int | None:
        """The GPU that a task with so much memory gets, by best fit; None: it fits on none."""
        some = [
            Device(str(used), self.capacity, (Request(0.0, used),), spare=1)
            for used, gpus in self.alike.items()
            if gpus
        ]
        answer = kubeshare.place(Request(0.0, memory), some)
        return self.alike[int(answer.device.name)].pop() if isinstance(answer, Placed) else None


class BestFit(TimeSharing):
    """online: what the online tasks of each GPU are together, by GPU. taken: GPUs with an offline
    task. shut: GPUs that take none."""

    def __init__(self, nodes: Sequence[int], capacity: int):
        super().__init__(nodes, capacity)
        self.capacity = capacity
        self.online: dict[int, Profile] = {}
        self.taken: set[int] = set()
        self.shut: set[int] = set()

    def free(self) -> list[int]:
        """GPUs that may take an offline task, those without an online one first."""
        able = [
            gpu
            for gpu in range(len(self.places.devices))
            if gpu not in self.taken and gpu not in self.shut
        ]
        return sorted(able, key=lambda gpu: gpu in self.online)

    def start(self, waiting: Sequence[int], tasks: Sequence[Offline]) -> Iterator[Start]:
        if not waiting:
            return
        free = self.free()
        idle = [gpu for gpu in free if gpu not in self.online]
        memory = {gpu: self.online[gpu].memory for gpu in free if gpu in self.online}
        beside = Beside(memory, self.capacity)
        for who in waiting[: len(free)]:
            gpu = idle.pop() if idle else beside.take(tasks[who].memory)
            if gpu is not None:
                self.taken.add(gpu)
                yield who, gpu

    def end(self, gpu: int, task: Offline) -> None:
        self.taken.remove(gpu)


class Matched(BestFit):
    """profiles: of the programs of offline tasks, alone. worths: by kind of offline task, then by
    kind of online tasks; the last one is none. kind_of: of each GPU's online tasks."""

    def __init__(
        self, nodes: Sequence[int], capacity: int, model: Model, profiles: dict[str, Profile]
    ):
        super().__init__(nodes, capacity)
        self.model = model
        self.profiles = profiles
        self.there: list[Profile] = []
        self.kind_of: Ints = np.zeros(0, dtype=np.int64)
        self.worths: dict[tuple[str, int], Floats] = {}

    def start(self, waiting: Sequence[int], tasks: Sequence[Offline]) -> Iterator[Start]:
        free = self.free() if waiting else []
        waiting = waiting[: len(free)]
        for at in range(0, len(waiting), JOBS):
            some = waiting[at : at + JOBS]
            idle = sum(gpu not in self.online for gpu in free)
            places = [*free[: min(idle, len(some))], *free[idle:]][:PLACES]
            kinds = self._kinds()[places]
            rows = [self._row(tasks[who].program, tasks[who].memory)[kinds] for who in some]
            for row, column in match(cast(Any, rows)).items():
                self.taken.add(places[column])
                yield some[row], places[column]
            free = [gpu for gpu in free if gpu not in self.taken]

    def _kinds(self) -> Ints:
        if not len(self.kind_of):
            self.there = list(dict.fromkeys(self.online.values()))
            number = {profile: n for n, profile in enumerate(self.there)}
            gpus = range(len(self.places.devices))
            kinds = [number[self.online[gpu]] if gpu in self.online else -1 for gpu in gpus]
            self.kind_of = np.array(kinds, dtype=np.int64)
        return self.kind_of

    def _row(self, program: str, memory: int) -> Floats:
        if (program, memory) not in self.worths:
            offline = replace(self.profiles[program], memory=memory)
            row = [worth(self.model, online, offline, self.capacity) for online in self.there]
            self.worths[program, memory] = np.array([*row, 1.0])
        return self.worths[program, memory]
