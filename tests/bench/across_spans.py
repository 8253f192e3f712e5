"""Who had which GPU and when, from what the processes of jobs have noted, and what of it must not
be: half of a job beside another one, or two jobs on one GPU.

All times are ns of the machine's monotonic clock, which all processes share.
"""

from __future__ import annotations

import bisect
import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.bench.across_ranks import GRANTED, RELEASED, REVOKED, ROW

Place = tuple[int, str]  # a job, and a node
Down = tuple[int, int]  # from when a node's daemon was dead to when the next one was ready


class Had(NamedTuple):
    """revoked: 0: it has not been told to stop. released: 1 << 62: not yet. late, revoked_late,
    released_late: for how long it had no processor and was ready to hear of its lease, of its end,
    and to say that it gives it back."""

    granted: int
    revoked: int
    released: int
    late: int = 0
    revoked_late: int = 0
    released_late: int = 0

    @property
    def told(self) -> int:
        """When the word of its lease had come."""
        return self.granted - self.late

    @property
    def told_to_stop(self) -> int:
        return self.revoked - self.revoked_late


NOT_YET = 1 << 62


class Broken(NamedTuple):
    """What must not be. `job` had its GPU on `node` while `beside` had one of job's GPUs on
    `beside_node`: of another node (a half gang) or the same one (an overlap)."""

    job: int
    node: str
    had: Had
    beside: int
    beside_node: str
    beside_had: Had

    def is_overlap(self) -> bool:
        return self.node == self.beside_node


class Log:
    """What one process has noted, which is read on as it grows."""

    def __init__(self, path: Path):
        self.path, self.read = path, 0
        self.done: list[Had] = []
        self.granted = self.revoked = self.late = self.revoked_late = 0

    def had(self) -> Sequence[Had]:
        """When it had its GPU, in order. A row that is being written is left for the next time."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self.read)
                data = file.read()
            whole = len(data) // ROW.size * ROW.size
            self.read += whole
            for row in ROW.iter_unpack(data[:whole]):
                self._take(*row)
        return [*self.done, self._until(NOT_YET)] if self.granted else self.done

    def _until(self, released: int, late: int = 0) -> Had:
        return Had(self.granted, self.revoked, released, self.late, self.revoked_late, late)

    def _take(self, what: int, at: int, late: int) -> None:
        if what == GRANTED and not self.granted:  # else it had an older lease, and has it still
            self.granted, self.late = at, late
        elif what == REVOKED:
            self.revoked, self.revoked_late = at, late
        elif what == RELEASED and self.granted:
            self.done.append(self._until(at, late))
            self.granted = self.revoked = self.late = self.revoked_late = 0


def read_all(logs: Mapping[Place, Log]) -> dict[Place, Sequence[Had]]:
    """When each job had its GPU on each node, without what has begun since this was called: the
    logs are read one after another, and jobs go on meanwhile. Whoever got a GPU by then got it
    after the one before had noted its release."""
    now = time.monotonic_ns()
    return {place: [one for one in log.had() if one.granted <= now] for place, log in logs.items()}


def is_orphan(had: Had, down: Iterable[Down]) -> bool:
    """The daemon that granted it was killed before it was released."""
    return any(had.granted < started and killed < had.released for killed, started in down)


class Users:
    """Those that had one GPU: job and when, in the order of their grants."""

    def __init__(self, spans: Iterable[tuple[Had, int]]):
        self.spans = sorted(spans)
        ends = (had.released for had, _ in self.spans)
        self.latest = list(itertools.accumulate(ends, max))  # of all up to each

    def during(self, had: Had) -> Iterator[tuple[Had, int]]:
        first = bisect.bisect_right(self.latest, had.granted)
        for other, job in itertools.islice(self.spans, first, None):
            if other.granted >= had.released:
                return
            if other.released > had.granted:
                yield other, job


def broken(
    jobs: Mapping[int, Sequence[str]],
    gpus: int,
    all_had: Mapping[Place, Sequence[Had]],
    down: Mapping[str, Sequence[Down]],
) -> Iterator[Broken]:
    """jobs: the nodes of each; each has GPU job % gpus there.

    A process whose daemon is dead runs on, and its job's other nodes need not wait for it; but on
    its own node nobody may have its GPU. Where no step of a job has begun yet it needs none.
    """
    of_gpu: defaultdict[tuple[str, int], list[tuple[Had, int]]] = defaultdict(list)
    for (job, node), spans in all_had.items():
        of_gpu[node, job % gpus] += [(had, job) for had in spans]
    users = {gpu: Users(spans) for gpu, spans in of_gpu.items()}
    for (job, node), spans in all_had.items():
        for had, other in itertools.product(spans, jobs[job]):
            begun = all_had.get((job, other), ())
            if not begun or begun[0].granted > had.granted:
                continue
            if other != node and is_orphan(had, down.get(node, ())):
                continue
            for beside_had, beside in users[other, job % gpus].during(had):
                # Two that overlap on one node are one fault.
                if beside != job and (other != node or (had, job) < (beside_had, beside)):
                    yield Broken(job, node, had, beside, other, beside_had)
