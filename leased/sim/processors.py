"""The GPUs' processors: who computes, and how fast while others do.

One job alone computes at full speed. Jobs that compute at once share the GPU's time and get
`side_by_side` done together. Where what they have does not fit, a part of what they touch is away
each time, and comes over the link for one after the other: that is how a GPU thrashes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from leased.sim.jobs import Gpu, Job, S
from leased.sim.timeline import Timeline

ALONE = 1.0, 0.0  # what _round() says of a GPU with one job
LENGTH = itemgetter(0)


@dataclass
class Work:
    """left: of the burst, ns at full speed. since: when left was so. rate: of full speed.
    paged_s: bytes that are paged in for a second of its work. turn: of its latest plan."""

    job: Job
    left: float
    since: int
    done: Callable[[], None]
    rate: float = 1.0
    paged_s: float = 0.0
    turn: int = 0


class Processors:
    """computed: ns of work done, by job. paged: bytes that came in meanwhile, by job."""

    def __init__(self, timeline: Timeline, gpus: Sequence[Gpu]):
        self.timeline = timeline
        self.gpus = gpus
        self.works: dict[int, Work] = {}
        self.computed: dict[int, float] = {}
        self.paged: dict[int, float] = {}

    def begin(self, who: int, job: Job, left: float, done: Callable[[], None]) -> None:
        """The job computes; done: called when so much work is finished."""
        self.works[who] = Work(job, left, self.timeline.now, done)
        self._changed(job)

    def stop(self, who: int) -> float:
        """The job stops computing. Returns what is left of its burst."""
        work = self.works[who]
        self._settle(who, work)
        del self.works[who]
        self._changed(work.job)
        return work.left

    def others_on(self, gpu: int) -> bool:
        """Another job computes on the GPU."""
        return any(gpu in work.job.gpus for work in self.works.values())

    def _changed(self, job: Job) -> None:
        """A job has begun or stopped computing on the GPUs of this job."""
        gpus = job.gpus
        for who, work in self.works.items():
            if work.job.gpus == gpus or not set(gpus).isdisjoint(work.job.gpus):
                self._settle(who, work)
                self._plan(who, work)

    def _settle(self, who: int, work: Work) -> None:
        """Count the work that the job has done since the last time."""
        did = min(work.left, (self.timeline.now - work.since) * work.rate)
        work.left -= did
        work.since = self.timeline.now
        self.computed[who] = self.computed.get(who, 0.0) + did
        self.paged[who] = self.paged.get(who, 0.0) + did * work.paged_s / S

    def _plan(self, who: int, work: Work) -> None:
        if len(self.works) < 2:
            length, away = ALONE
        else:
            length, away = max(map(self._round, work.job.gpus), key=LENGTH)
        work.rate = 1.0 / length
        work.paged_s = away * work.job.touches_bytes_s
        work.turn += 1
        turn = work.turn

        def end() -> None:
            if self.works.get(who) is work and work.turn == turn:
                work.left = max(0.0, work.left)
                self._finish(who, work)

        self.timeline.after(math.ceil(work.left * length), end)

    def _finish(self, who: int, work: Work) -> None:
        self._settle(who, work)
        self.computed[who] += work.left
        del self.works[who]
        self._changed(work.job)
        work.done()

    def _round(self, gpu: int) -> tuple[float, float]:
        """How long it takes until everybody there has computed for 1, and the part of all memory
        that is away."""
        there = [work.job for work in self.works.values() if gpu in work.job.gpus]
        if len(there) < 2:
            return ALONE
        wanted = sum(job.memory for job in there)
        away = max(0.0, 1 - self.gpus[gpu].memory / wanted) if wanted else 0.0
        paging = away * sum(job.touches_bytes_s for job in there) / self.gpus[gpu].paging_bytes_s
        return max(1.0, len(there) / self.gpus[gpu].side_by_side) + paging, away
